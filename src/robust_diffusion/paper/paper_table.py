"""One of the paper's tables, made of records alone: ours beside the printed numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from omegaconf import OmegaConf

from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.cells import CLEAN, Cell, cells_of, select
from robust_diffusion.paper.entry import Entry, Mark, Test, measure
from robust_diffusion.paper.header import Header, describe
from robust_diffusion.paper.layout import Layout, Line, load_layout, table_numbers
from robust_diffusion.paper.own import with_own
from robust_diffusion.paper.printed import ASSUMED_RUNS
from robust_diffusion.paper.times import (
    describe_stand_ins,
    describe_times,
    stand_in,
    with_stand_in,
)
from robust_diffusion.results.significance import holm, one_sample_p, welch_p

Grid = list[list[Entry]]
"""Rows of entries."""


@dataclass(frozen=True)
class PaperTable:
    """A table, ready to be shown.

    Args:
        layout: Captions, headings, rows and columns.
        scale: full, or smoke, whose numbers say nothing about the paper.
        fidelity: Which reading of the paper was run.
        entries: Per row of the layout, per column its entry.
        header: What all entries have in common, those below included.
        below: The table's second grid.
    """

    layout: Layout
    scale: str
    fidelity: str
    entries: tuple[tuple[Entry, ...], ...]
    header: Header
    below: "PaperTable | None" = None

    @property
    def parts(self) -> "list[PaperTable]":
        """Its grids, from top to bottom."""
        return [self, *(self.below.parts if self.below else [])]

    @property
    def smoke(self) -> bool:
        """Its numbers say nothing about the paper."""
        return self.scale == "smoke"

    @property
    def decimals(self) -> int:
        """Digits behind the point."""
        return 2 if self.layout.kind == "accuracy" else 0

    @property
    def lines(self) -> list[str]:
        """What is to be said of the table as a whole, a sentence each."""
        if self.layout.kind == "budgets":
            return ["Edges are counted per injected node, as GRB's attacks do."]
        lines = self.header.lines
        if self.layout.kind == "accuracy":
            lines += describe_stand_ins(entry.line.keys["dataset"] for _, _, entry in self)
        if self.layout.kind == "time":
            records = {id(run.record): run.record for _, _, entry in self for run in entry.runs}
            states = list(self.header.states)
            place = 1 if self.smoke else 0  # behind the line that says so
            lines[place:place] = describe_times(self.layout, list(records.values()), states)
        if set(self.header.states) == {"not run"}:
            options = f"experiment={self.layout.experiment}"
            if self.header.fidelity != "paper":
                options += f" fidelity={self.header.fidelity}"
            if self.smoke:
                options += " scale=smoke"
            command = f"python -m robust_diffusion.run {options}"
            return [*lines, f"{command} runs it."]
        return lines

    @property
    def title(self) -> str:
        """Number and label, and what the numbers are worth."""
        title = f"Table {self.layout.number} ({self.layout.label}), arXiv:2209.07754"
        if other := stand_in(self.layout):
            title += f"; dataset={other} as a stand-in"
        if self.layout.fixed.own:
            named = (f"{axis}={value}" for axis, value in self.layout.fixed.keys.items())
            title += f"; of {', '.join(named)}"
        return f"{title}; SMOKE RUN, not comparable with the paper" if self.smoke else title

    def __iter__(self) -> Iterator[tuple[Line, Line, Entry]]:
        """Row, column and entry, row by row, grid by grid."""
        for part in self.parts:
            for row, entries in zip(part.layout.rows, part.entries, strict=True):
                for column, entry in zip(part.layout.columns, entries, strict=True):
                    yield row, column, entry


def build_tables(
    records: Sequence[Record], *, scale: str = "full", fidelity: str = "paper"
) -> dict[int, PaperTable]:
    """Every table of the paper, by its number; as `build_table`."""
    return {
        number: build_table(load_layout(number), records, scale=scale, fidelity=fidelity)
        for number in table_numbers()
    }


def build_table(
    layout: Layout, records: Sequence[Record], *, scale: str = "full", fidelity: str = "paper"
) -> PaperTable:
    """Fill a layout from records.

    Args:
        layout: Of the table.
        records: Of any experiments, in the order in which they were appended.
        scale: Which runs count: full or smoke.
        fidelity: Which reading of the paper counts: paper or released.

    Returns:
        The table; an entry without a number says why.
    """
    cells = cells_of(records, experiment=layout.experiment, scale=scale, fidelity=fidelity)
    if layout.kind == "time":
        layout = with_stand_in(layout, cells)
    elif layout.kind == "accuracy":
        layout = layout.with_stand_ins({c.record["dataset"] for c in cells if c.finished})
        layout = with_own(layout, cells)
    grids = [_measured(part, cells, smoke=scale == "smoke") for part in layout.parts]
    grids = _marked_seeds(grids)
    if scale != "smoke" and layout.kind == "accuracy":
        grids = [_tested(grid) for grid in grids]
    grids = [_ranked(grid, part) for grid, part in zip(grids, layout.parts, strict=True)]
    entries = [entry for grid in grids for row in grid for entry in row]
    header = describe(
        layout,
        [(entry.graph, run.record) for entry in entries for run in entry.runs],
        states=[entry.state for entry in entries],
        comparisons=sum(entry.p is not None for entry in entries),
        scale=scale,
        fidelity=fidelity,
    )
    table = None
    for part, grid in zip(reversed(layout.parts), reversed(grids), strict=True):
        table = PaperTable(part, scale, fidelity, tuple(map(tuple, grid)), header, table)
    assert table is not None
    return table


def _measured(layout: Layout, cells: Sequence[Cell], *, smoke: bool) -> Grid:
    return [
        [_entry(layout, row, column, cells, smoke=smoke) for column in layout.columns]
        for row in layout.rows
    ]


def _entry(layout: Layout, row: Line, column: Line, cells: Sequence[Cell], *, smoke: bool) -> Entry:
    line, printed = layout.at(row, column), layout.printed(row, column)
    if layout.kind == "budgets":
        return Entry(line, CLEAN, printed, "measured", mean=_configured_budget(line))
    timed = layout.kind == "time"
    graph = CLEAN if timed else line.printed["attack"]
    found = select(cells, line, graph, timed=timed)
    return measure(line, graph, printed, found, comparable=not smoke, timed=timed)


def _configured_budget(line: Line) -> float:
    dataset, limit = line.keys["dataset"], line.keys["limit"]
    config = OmegaConf.load(CONFIG_DIR / "dataset" / f"{dataset}.yaml")
    return float(config.budget[limit])


def _marked_seeds(grids: list[Grid]) -> list[Grid]:
    """Mark entries with fewer seeds than others have."""
    most = max((entry.n for rows in grids for row in rows for entry in row), default=0)

    def marked(entry: Entry) -> Entry:
        if not 0 < entry.n < most:
            return entry
        return replace(entry, marks=(*entry.marks, Mark("seeds", f"{entry.n} of {most} seeds")))

    return [[[marked(entry) for entry in row] for row in rows] for rows in grids]


def _tested(rows: Grid) -> Grid:
    """Test every entry against its printed number, and correct for their number."""
    tested = [[_test(entry) for entry in row] for row in rows]
    corrected = iter(holm([entry.p for row in tested for entry in row if entry.p is not None]))
    return [
        [entry if entry.p is None else replace(entry, p_holm=next(corrected)) for entry in row]
        for row in tested
    ]


def _test(entry: Entry) -> Entry:
    printed, values = entry.printed, [run.value for run in entry.runs]
    if printed.mean is None:
        return entry
    test: Test
    if printed.std is None:
        test, p = "one sample", one_sample_p(values, printed.mean)
    else:
        test, p = "welch", welch_p(values, printed.mean, printed.std, ASSUMED_RUNS)
    return entry if p is None else replace(entry, p=p, test=test)


def _ranked(rows: Grid, layout: Layout) -> Grid:
    """Give the best and the second best of each row or column their rank."""
    if layout.best == "none":
        return rows
    lines = rows if layout.best == "row" else [list(column) for column in zip(*rows, strict=True)]
    ranked = [_ranks(line) for line in lines]
    return ranked if layout.best == "row" else [list(row) for row in zip(*ranked, strict=True)]


def _ranks(line: Sequence[Entry]) -> list[Entry]:
    # Entries that a reader cannot tell apart are equally good.
    shown = [None if entry.mean is None else round(entry.mean, 2) for entry in line]
    order = sorted({value for value in shown if value is not None}, reverse=True)
    # Of two, the second is only the worst.
    ranks = dict(zip(order, (1, 2) if len(line) > 2 else (1,), strict=False))
    return [
        entry if value is None else replace(entry, rank=ranks.get(value))
        for entry, value in zip(line, shown, strict=True)
    ]
