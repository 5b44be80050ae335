"""Layouts: the `table` section of an experiment, read into grids of rows and columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any, Literal, get_args

from omegaconf import OmegaConf

from robust_diffusion.checks import check_choice, check_whole
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.axes import STAND_INS, Choice, choice
from robust_diffusion.paper.printed import NOT_PRINTED, printed_number
from robust_diffusion.results.entry import Best, Reported

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

    choices: Mapping[str, Choice] = field(default_factory=dict)  # by axis
    own: bool = False  # the paper has no such row or column

    def __or__(self, other: "Line") -> "Line":
        """Both; where they differ, the other counts."""
        return Line({**self.choices, **other.choices}, self.own or other.own)

    @property
    def keys(self) -> dict[str, str]:
        """Value on each axis."""
        return {axis: chosen.value for axis, chosen in self.choices.items()}

    @property
    def labels(self) -> tuple[str, ...]:
        """Shown text per axis."""
        return tuple(chosen.label for chosen in self.choices.values())

    @property
    def label(self) -> str:
        """The labels in one text."""
        return " ".join(self.labels)

    @property
    def printed(self) -> dict[str, str]:
        """Column of `printed.csv` -> its text there."""
        texts = [chosen.printed for chosen in self.choices.values()]
        # Two axes may each have a part of the paper's parameter, as in "implicit_adams;tau=2".
        parameters = [text["parameter"] for text in texts if "parameter" in text]
        shared = {"parameter": ";".join(parameters)} if parameters else {}
        return dict(chain.from_iterable(text.items() for text in texts)) | shared

    @property
    def record(self) -> dict[str, Any]:
        """Dotted path in a record -> value."""
        return dict(chain.from_iterable(of.record.items() for of in self.choices.values()))

    def at(self, axis: str, chosen: Choice) -> "Line":
        """The same line at another value of one of its axes."""
        return replace(self, choices={**self.choices, axis: chosen})


@dataclass(frozen=True)
class Grid:
    """Rows and columns that share a header."""

    headings: tuple[str, ...]  # of the columns that name the rows
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    best: Best  # along what the best and second best are marked
    grouped: bool = True  # adjacent rows with one first label are a block


@dataclass(frozen=True)
class Layout:
    """Layout of one of the paper's tables."""

    number: int  # in the order of the paper's source
    label: str  # in the paper's source and in `printed.csv`
    kind: Kind  # accuracies of cells, their times, or configured budgets
    caption: str
    fixed: Line  # common to all entries, and not shown
    grids: tuple[Grid, ...]  # from top to bottom
    swept: frozenset[str] = frozenset()  # options that the experiment runs through

    @property
    def name(self) -> str:
        """Number, and what it is about."""
        return table_name(self.number)

    @property
    def experiment(self) -> str:
        """Name of the experiment whose cells it shows."""
        return f"table-{self.number}"

    @property
    def entries(self) -> list[Line]:
        """Meaning of every entry, grid by grid, row by row."""
        return [
            self.fixed | row | column
            for grid in self.grids
            for row, column in product(grid.rows, grid.columns)
        ]

    def printed(self, entry: Line) -> Reported:
        """The published entry; of a stand-in, or of what the paper does not have, there is none."""
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
    below = section.get("below")
    for key in (*section, *(below or {})):
        check_choice("table", key, REQUIRED | OPTIONAL)
    for key in sorted(REQUIRED - set(section)):
        raise ConfigError(f"table.{key}: missing; every layout has one")
    return Layout(
        number=check_whole("table.number", section["number"], at_least=1),
        label=section["label"],
        kind=check_choice("table.kind", section.get("kind", "accuracy"), get_args(Kind)),  # type: ignore[arg-type]
        caption=section["caption"],
        fixed=_product(section.get("fixed", {}))[0],
        grids=(_grid(section), *([_grid({**section, **below})] if below else [])),
    )


def _grid(section: Mapping[str, Any]) -> Grid:
    grid = Grid(
        headings=tuple(section["headings"]),
        rows=_lines(section["rows"]),
        columns=_lines(section["columns"]),
        best=check_choice("table.best", section["best"], get_args(Best)),  # type: ignore[arg-type]
        grouped=section.get("grouped", True),
    )
    for line in grid.rows:
        if len(line.labels) != len(grid.headings):
            row = f"the row {line.label} has {len(line.labels)} labels"
            raise ConfigError(f"table.headings={list(grid.headings)}: {row}; give one for each")
    return grid


@cache
def _experiment(path: Path) -> dict[str, Any]:
    experiment: Any = OmegaConf.to_container(OmegaConf.load(path))
    return experiment  # type: ignore[no-any-return]


def _lines(blocks: Sequence[Mapping[str, Any]]) -> tuple[Line, ...]:
    return tuple(line for block in blocks for line in _product(block))


def _product(axes: Mapping[str, Any]) -> list[Line]:
    """Every combination of the axes' values, the first axis slowest."""
    values = [_choices(axis, given) for axis, given in axes.items()]
    return [Line(dict(zip(axes, chosen, strict=True))) for chosen in product(*values)]


def _choices(axis: str, values: Any) -> list[Choice]:
    """One choice per value; a mapping gives each value its label."""
    if isinstance(values, Mapping):
        return [replace(choice(axis, str(v)), label=str(label)) for v, label in values.items()]
    return [choice(axis, str(v)) for v in (values if isinstance(values, list) else [values])]
