"""Layouts: the `table` section of an experiment, read into rows and columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby, product
from pathlib import Path
from typing import Any, Literal, get_args

from omegaconf import OmegaConf

from robust_diffusion.checks import check_choice, check_whole
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.axes import STAND_INS, Choice, choice
from robust_diffusion.paper.printed import NOT_PRINTED, PrintedNumber, printed_number
from robust_diffusion.results.grid import Best

Kind = Literal["accuracy", "budgets", "time"]

REQUIRED = {"number", "label", "caption", "headings", "rows", "columns", "best"}
OPTIONAL = {"kind", "fixed", "grouped", "below"}

NAMES = {
    1: "networks under attack",
    2: "BeltramiGuard under attack",
    3: "flows under attack",
    4: "datasets",
    5: "solvers and step sizes",
    6: "numbers of layers",
    7: "time of a step",
    8: "white-box attacks",
    9: "sizes of injections",
    10: "modified nodes and edges",
    11: "heat flow under small attacks",
    12: "networks under attack, other graphs",
    13: "flows under attack, other graphs",
    14: "p-Laplacian under attack",
    15: "budgets of the attacks",
}
"""Tables of the paper in words; it has labels alone."""


@dataclass(frozen=True)
class Line:
    """A row or a column, or what all entries of a table have in common."""

    keys: Mapping[str, str] = field(default_factory=dict)  # axis -> value
    labels: tuple[str, ...] = ()  # shown text per axis
    printed: Mapping[str, str] = field(default_factory=dict)  # column of `printed.csv` -> text
    record: Mapping[str, Any] = field(default_factory=dict)  # dotted path in a record -> value
    own: bool = False  # the paper has no such row or column

    def __or__(self, other: "Line") -> "Line":
        """Both; where they differ, the other counts."""
        printed = {**self.printed, **other.printed}
        # Two axes may each have a part of the paper's parameter, as in "implicit_adams;tau=2".
        if "parameter" in self.printed and "parameter" in other.printed:
            printed["parameter"] = f"{self.printed['parameter']};{other.printed['parameter']}"
        return Line(
            {**self.keys, **other.keys},
            self.labels + other.labels,
            printed,
            {**self.record, **other.record},
            self.own or other.own,
        )

    @property
    def label(self) -> str:
        """The labels in one text."""
        return " ".join(self.labels)

    def at(self, axis: str, value: str, meaning: Choice) -> "Line":
        """The same line at another value, with its meaning, of one of its axes."""
        old = choice(axis, self.keys[axis])
        named = zip(self.keys, self.labels, strict=True)
        printed = {key: text for key, text in self.printed.items() if key not in old.printed}
        record = {path: own for path, own in self.record.items() if path not in old.record}
        return replace(
            self,
            keys={**self.keys, axis: value},
            labels=tuple(meaning.label if key == axis else label for key, label in named),
            printed={**printed, **meaning.printed},
            record={**record, **meaning.record},
        )


@dataclass(frozen=True)
class Layout:
    """Layout of one of the paper's tables."""

    number: int  # in the order of the paper's source
    label: str  # in the paper's source and in `printed.csv`
    kind: Kind  # accuracies of cells, their times, or configured budgets
    caption: str
    headings: tuple[str, ...]  # of the columns that name the rows
    fixed: Line  # common to all entries, and not shown
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    best: Best  # along what the best and second best are marked
    grouped: bool = True  # adjacent rows with one first label are a block
    swept: frozenset[str] = frozenset()  # options that the experiment runs through
    below: "Layout | None" = None  # a second grid, with rows and columns of its own

    @property
    def name(self) -> str:
        """Number, and what it is about."""
        return table_name(self.number)

    @property
    def parts(self) -> list["Layout"]:
        """Its grids, from top to bottom."""
        return [self, *(self.below.parts if self.below else [])]

    @property
    def experiment(self) -> str:
        """Name of the experiment whose cells it shows."""
        return f"table-{self.number}"

    @property
    def blocks(self) -> list[list[int]]:
        """Places of the rows, those that share their first label together."""
        if not self.grouped:
            return [[i] for i in range(len(self.rows))]
        places = groupby(range(len(self.rows)), key=lambda i: self.rows[i].labels[0])
        return [list(block) for _, block in places]

    def on(self, dataset: str) -> "Layout":
        """The same table of another dataset's records beside the same published values."""
        other = Line({"dataset": dataset}, record={"dataset": dataset})
        below = self.below.on(dataset) if self.below else None
        return replace(self, fixed=self.fixed | other, below=below)

    def at(self, row: Line, column: Line) -> Line:
        """Meaning of an entry."""
        return self.fixed | row | column

    def printed(self, row: Line, column: Line) -> PrintedNumber:
        """The published entry; of a stand-in, or of what the paper does not have, there is none."""
        entry = self.at(row, column)
        if entry.own or entry.printed.get("dataset") in STAND_INS.values():
            return NOT_PRINTED
        return printed_number({"table": self.label, **entry.printed})


def table_name(number: int) -> str:
    """Number of a table, and what it is about."""
    return f"Table {number} · {NAMES[number]}"


def table_numbers() -> list[int]:
    """Numbers of the tables that have a layout."""
    paths = CONFIG_DIR.glob("experiment/table-*.yaml")
    return sorted(
        int(path.stem.removeprefix("table-")) for path in paths if "table" in _experiment(path)
    )


def load_layout(number: int) -> Layout:
    """The layout of a table."""
    path = CONFIG_DIR / "experiment" / f"table-{number}.yaml"
    experiment = _experiment(path) if path.is_file() else {}
    if "table" not in experiment:
        known = ", ".join(map(str, table_numbers()))
        raise ConfigError(f"table={number}: has no layout; use one of {known}")
    sweeper = experiment.get("hydra", {}).get("sweeper", {})
    grids = [sweeper.get("params", {}), *sweeper.get("grids", [])]
    swept = frozenset(key for grid in grids for key in grid)
    return replace(parse_layout(experiment["table"]), swept=swept)


def parse_layout(section: Mapping[str, Any]) -> Layout:
    """Read the `table` section of an experiment."""
    for key in section:
        check_choice("table", key, REQUIRED | OPTIONAL)
    for key in sorted(REQUIRED - set(section)):
        raise ConfigError(f"table.{key}: missing; every layout has one")
    below = section.get("below")
    layout = Layout(
        number=check_whole("table.number", section["number"], at_least=1),
        label=section["label"],
        kind=check_choice("table.kind", section.get("kind", "accuracy"), get_args(Kind)),  # type: ignore[arg-type]
        caption=section["caption"],
        headings=tuple(section["headings"]),
        fixed=_product(section.get("fixed", {}))[0],
        rows=_lines(section["rows"]),
        columns=_lines(section["columns"]),
        best=check_choice("table.best", section["best"], get_args(Best)),  # type: ignore[arg-type]
        grouped=section.get("grouped", True),
        below=parse_layout({**section, "below": None, **below}) if below else None,
    )
    for line in layout.rows:
        if len(line.labels) != len(layout.headings):
            row = f"the row {line.label} has {len(line.labels)} labels"
            raise ConfigError(f"table.headings={list(layout.headings)}: {row}; give one for each")
    return layout


@cache
def _experiment(path: Path) -> dict[str, Any]:
    experiment: Any = OmegaConf.to_container(OmegaConf.load(path))
    return experiment  # type: ignore[no-any-return]


def _lines(blocks: Sequence[Mapping[str, Any]]) -> tuple[Line, ...]:
    return tuple(line for block in blocks for line in _product(block))


def _product(axes: Mapping[str, Any]) -> list[Line]:
    """Every combination of the axes' values, the first axis slowest."""
    lines = []
    for chosen in product(*(_values(axis, values) for axis, values in axes.items())):
        line = Line()
        for part in chosen:
            line = line | part
        lines.append(line)
    return lines


def _values(axis: str, values: Any) -> list[Line]:
    """One line per value; a mapping gives each value its label."""
    given = values if isinstance(values, Mapping | list) else [values]
    lines = []
    for value in map(str, given):
        found = choice(axis, value)
        label = str(given[value]) if isinstance(given, Mapping) else found.label
        lines.append(Line({axis: value}, (label,), found.printed, found.record))
    return lines
