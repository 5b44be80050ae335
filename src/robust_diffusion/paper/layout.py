"""Layouts: the `table` section of an experiment as grids of rows and columns, fitted to records."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import groupby, product, takewhile
from pathlib import Path
from typing import Any, Literal, get_args

from robust_diffusion.checks import Count, check_choice, check_value
from robust_diffusion.config import CONFIG_DIR, read_yaml
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.axes import (
    FORMER_STAND_INS,
    MODELS,
    NAMED,
    STAND_INS,
    Choice,
    choice,
)
from robust_diffusion.records.records import CLEAN, Record, has_values, is_timing
from robust_diffusion.results.entry import Best, Reported

_Kind = Literal["accuracy", "budgets", "time"]

KEYS = frozenset(["number", "name", "label", "caption", "headings", "rows", "columns", "best"])
KEYS |= {"kind", "fixed", "grouped", "below"}
"""Keys of a layout; those of the second line have defaults."""

PRINTED = Path(__file__).with_name("printed.csv")
"""File of the numbers that the paper prints."""

ASSUMED_RUNS = 5
"""Runs behind a printed mean and deviation; the paper says 5 to 10, so this is the cautious end."""

NOT_PRINTED = Reported()
"""Published number of an entry that the paper does not have."""


@dataclass(frozen=True)
class Line:
    """A row or a column, or the choices that all entries of a table share."""

    choices: Mapping[str, Choice] = field(default_factory=dict)  # by axis
    added: bool = False  # the paper has no such row or column

    def __or__(self, other: "Line") -> "Line":
        """Combine two lines; the other's choices override this one's."""
        return Line({**self.choices, **other.choices}, self.added or other.added)

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
        texts: dict[str, str] = {}
        for column, text in (item for c in self.choices.values() for item in c.printed.items()):
            # Two axes may each have a part of the paper's parameter, as in "implicit_adams;tau=2".
            both = column == "parameter" and column in texts
            texts[column] = f"{texts[column]};{text}" if both else text
        return texts

    @property
    def record(self) -> dict[str, Any]:
        """Dotted path in a record -> value."""
        return {path: value for c in self.choices.values() for path, value in c.record.items()}

    def at(self, axis: str, chosen: Choice) -> "Line":
        """Return the line at another value of one of its axes."""
        return replace(self, choices={**self.choices, axis: chosen})


@dataclass(frozen=True)
class Grid:
    """Rows and columns that share a header."""

    headings: tuple[str, ...]  # of the columns that name the rows
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    best: Best  # the direction along which the best and second best are marked
    grouped: bool = True  # adjacent rows with one first label are a block


@dataclass(frozen=True)
class Layout:
    """Layout of one of the paper's tables."""

    number: int  # in the order of the paper's source
    title: str  # what it is about; the paper has labels alone
    label: str  # in the paper's source and in `printed.csv`
    kind: _Kind  # accuracies of runs, their times, or configured budgets
    caption: str
    fixed: Line  # common to all entries, and not shown
    grids: tuple[Grid, ...]  # from top to bottom
    swept: frozenset[str] = frozenset()  # options that the experiment runs through

    @property
    def name(self) -> str:
        """Number, and what it is about."""
        return f"Table {self.number} · {self.title}"

    @property
    def experiment(self) -> str:
        """Name of the experiment whose runs it shows."""
        return f"table-{self.number}"

    @property
    def entries(self) -> list[Line]:
        """Meaning of every entry, grid by grid, row by row."""
        pairs = (pair for grid in self.grids for pair in product(grid.rows, grid.columns))
        return [self.fixed | row | column for row, column in pairs]

    @property
    def lines(self) -> list[Line]:
        """Rows and columns of all grids."""
        return [line for grid in self.grids for line in (*grid.rows, *grid.columns)]

    def changed(self, change: Callable[[Sequence[Line]], Iterable[Line]]) -> "Layout":
        """Return the layout with other rows and columns, without grids that have none left."""
        grids = (
            replace(grid, rows=tuple(change(grid.rows)), columns=tuple(change(grid.columns)))
            for grid in self.grids
        )
        return replace(self, grids=tuple(grid for grid in grids if grid.rows and grid.columns))

    def printed(self, entry: Line) -> Reported:
        """Return the published entry; an addition to the paper has none."""
        if entry.added:
            return NOT_PRINTED
        return printed_number({"table": self.label, **entry.printed})


def table_numbers() -> list[int]:
    """Return the numbers of the tables that have a layout."""
    paths = CONFIG_DIR.glob("experiment/table-*.yaml")
    laid_out = (path for path in paths if "\ntable:" in path.read_text(encoding="utf-8"))
    return sorted(int(path.stem.removeprefix("table-")) for path in laid_out)


@cache
def load_layout(number: int) -> Layout:
    """Load the layout of a table."""
    path = CONFIG_DIR / "experiment" / f"table-{number}.yaml"
    experiment = read_yaml(path) if path.is_file() else {}
    if "table" not in experiment:
        known = ", ".join(map(str, table_numbers()))
        raise ConfigError(f"table={number}: has no layout; use one of {known}")
    sweeper = experiment.get("hydra", {}).get("sweeper", {})
    grids = [sweeper.get("params", {}), *sweeper.get("grids", [])]
    swept = frozenset(key for grid in grids for key in grid)
    return replace(parse_layout(experiment["table"]), swept=swept)


def parse_layout(section: Mapping[str, Any]) -> Layout:
    """Read the `table` section of an experiment."""
    below = section.get("below") or {}
    for key in (*section, *below):
        check_choice("table", key, KEYS)
    return Layout(
        number=check_value("table.number", section["number"], Count),
        title=section["name"],
        label=section["label"],
        kind=check_choice("table.kind", section.get("kind", "accuracy"), get_args(_Kind)),  # type: ignore[arg-type]
        caption=section["caption"],
        fixed=_product(section.get("fixed", {}))[0],
        grids=tuple(map(_grid, [section, {**section, **below}] if below else [section])),
    )


@cache
def printed_rows(table: str) -> list[dict[str, str]]:
    """Return the rows of `printed.csv` that belong to a table, as text."""
    with PRINTED.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["table"] == table]


def printed_number(where: Mapping[str, str]) -> Reported:
    """Return the one entry with these texts in its columns.

    None, or more than one, is a `ConfigError`.
    """
    rows = [row for row in printed_rows(where["table"]) if where.items() <= row.items()]
    if len(rows) != 1:
        wanted = ", ".join(f"{column}={text}" for column, text in where.items())
        raise ConfigError(f"table: {len(rows)} printed numbers with {wanted}; name exactly one")
    nodes, edges = rows[0]["budget_nodes"], rows[0]["budget_edges"]
    mean, std = (float(rows[0][key]) if rows[0][key] else None for key in ("mean", "std"))
    is_count = nodes.isdigit() and edges.isdigit()
    return Reported(mean, std, (int(nodes), int(edges)) if is_count else None)


def _grid(section: Mapping[str, Any]) -> Grid:
    rows, columns = (
        tuple(line for block in section[key] for line in _product(block))
        for key in ("rows", "columns")
    )
    headings = tuple(section["headings"])
    for line in rows:
        if len(line.labels) != len(headings):
            row = f"the row {line.label} has {len(line.labels)} labels"
            raise ConfigError(f"table.headings={list(headings)}: {row}; give one for each")
    best: Any = check_choice("table.best", section["best"], get_args(Best))
    return Grid(headings, rows, columns, best, section.get("grouped", True))


def _product(axes: Mapping[str, Any]) -> list[Line]:
    """Return every combination of the axes' values, the first axis slowest."""
    values = [_choices(axis, choices) for axis, choices in axes.items()]
    return [Line(dict(zip(axes, combination, strict=True))) for combination in product(*values)]


def _choices(axis: str, values: Any) -> Sequence[Choice]:
    """Return one choice per value; a mapping gives each value its label."""
    if isinstance(values, Mapping):
        return [replace(choice(axis, str(v)), label=str(label)) for v, label in values.items()]
    return [choice(axis, str(v)) for v in (values if isinstance(values, list) else [values])]


def fit_layout(layout: Layout, records: Sequence[Record]) -> Layout:
    """Return the layout of what was run, with replacement datasets and the user's rows and columns.

    Times are of the paper's dataset if it was timed, otherwise of the one timed last. Accuracies on
    a stand-in take the place of those of its dataset, or follow them if both were run. Every other
    dataset, attack and model that the table lacks follows the table's own, in the order in which
    they were run. If a whole table is of one dataset or model, and only others were run, it becomes
    a table of the newest. Runs are ordered by their latest request.
    """
    fixed, dataset = layout.fixed, layout.fixed.keys.get("dataset", "")
    if layout.kind != "accuracy":
        timed = [r["dataset"] for r in records if "error" not in r and is_timing(r)]
        if layout.kind == "budgets" or dataset in timed or not timed:
            return layout
        # Next to the printed times of the paper's dataset.
        here = replace(_named("dataset", timed[-1]), printed=fixed.printed)
        return replace(layout, fixed=fixed.at("dataset", here))
    datasets = {record["dataset"] for record in records if "error" not in record}
    stand_ins = {name: choice("dataset", sub) for name, sub in STAND_INS.items() if sub in datasets}
    if stand_ins:
        records = [record for record in records if record["dataset"] not in FORMER_STAND_INS]
    if dataset in stand_ins and dataset not in datasets:
        fixed = fixed.at("dataset", stand_ins[dataset])
    recorded: dict[str, dict[str, Choice]] = {"dataset": {}, "attack": {}, "model": {}}
    for axis, option in (pair for record in records for pair in _recorded_choices(record)):
        recorded[axis][option.value] = option
    for axis in ("dataset", "model"):
        if recorded[axis] and fixed.keys.get(axis) not in (None, *recorded[axis]):
            fixed = replace(fixed.at(axis, list(recorded[axis].values())[-1]), added=True)

    fit = partial(_fitted, stand_ins=stand_ins, recorded=recorded, records=records)
    return replace(layout.changed(fit), fixed=fixed)


def _fitted(
    lines: Sequence[Line],
    stand_ins: Mapping[str, Choice],
    recorded: Mapping[str, Mapping[str, Choice]],
    records: Sequence[Record],
) -> list[Line]:
    """Return the lines, with those of stand-ins, and the user's."""
    grown: list[Line] = []
    for name, group in groupby(lines, key=lambda line: line.keys.get("dataset", "")):
        block, other = list(group), stand_ins.get(name)
        if other is None or name in recorded["dataset"]:
            grown += block
        if other:
            grown += [line.at("dataset", other) for line in block]
    for axis, choices in recorded.items():
        _grow(grown, axis, choices)
    # Only those of the user's lines that have a record.
    return [x for x in grown if not x.added or any(_fits(x, record) for record in records)]


def _grow(lines: list[Line], axis: str, choices: Mapping[str, Choice]) -> None:
    """Insert the same lines for each value that the lines lack."""
    old = list(lines)
    have = {line.keys[axis] for line in old if axis in line.keys}
    for value in (v for v in choices if have and v not in have):
        for line in old:
            new = replace(line.at(axis, choices[value]), added=True)
            if new not in lines:
                # Behind the last of the lines that are the same on all axes before this one.
                before = dict(takewhile(lambda key: key[0] != axis, new.keys.items())).items()
                alike = [i for i, x in enumerate(lines) if before <= x.keys.items()]
                lines.insert(alike[-1] + 1, new)


def _fits(line: Line, record: Record) -> bool:
    attacked = line.keys.get("attack", CLEAN) in (CLEAN, *_attacks(record))
    return attacked and has_values(record, line.record)


def _named(axis: str, name: str) -> Choice:
    """Look up a name; a name that no table of the paper has is its own label."""
    record = {axis: name} if axis == "dataset" else {}
    return NAMED[axis].get(name) or Choice(name, name, {axis: name}, record)


def _attacks(record: Record) -> list[str]:
    # A failed run records the attack that it was meant for.
    names = record.get("accuracy") or record.get("config", {}).get("attacks") or {}
    return [name for name in names if name != CLEAN]


def _recorded_choices(record: Record) -> Iterator[tuple[str, Choice]]:
    """Return a record's values by axis; no model for a known flow with options that no table has.

    Under the flow's name, it would pass for the flow itself.
    """
    yield "dataset", _named("dataset", str(record["dataset"]))
    yield from (("attack", _named("attack", name)) for name in _attacks(record))
    known, model, flow = NAMED["model"].values(), record["model"], record.get("flow")
    if matches := [entry for entry in known if has_values(record, entry.record)]:
        yield "model", matches[0]
    elif model != "graph_pde":
        yield "model", replace(_named("model", model), record={"model": model})
    elif all(entry.record.get("flow") != flow for entry in known):
        name = f"{model} {flow}" if flow in MODELS else str(flow)  # it may be called as a model is
        yield "model", Choice(name, name, {"model": name}, {"model": model, "flow": flow})
