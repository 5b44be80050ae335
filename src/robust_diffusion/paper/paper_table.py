"""One of the paper's tables, measured numbers beside the published ones."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from omegaconf import OmegaConf

from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.paper.fit_layout import fit_layout
from robust_diffusion.paper.header import describe
from robust_diffusion.paper.layout import Layout, Line, load_layout, table_numbers
from robust_diffusion.paper.printed import ASSUMED_RUNS
from robust_diffusion.paper.times import describe_stand_ins, describe_times, stand_in
from robust_diffusion.results.bounds import outdone
from robust_diffusion.results.cells import CLEAN, Cell, RecordSet, select
from robust_diffusion.results.entry import Entry, State, measure
from robust_diffusion.results.grid import Grid, compare_entries, mark_fewer_seeds, rank_entries


@dataclass(frozen=True)
class PaperTable:
    """A table, ready to be shown."""

    layout: Layout
    entries: tuple[tuple[Entry, ...], ...]  # per row of the layout, per column
    scale: str  # full, or smoke, whose numbers say nothing about the paper
    fidelity: str  # variant of the paper that was run
    states: Mapping[State, int]  # number of entries in each, of both grids
    remarks: Sequence[str]  # on what both grids have in common
    below: "PaperTable | None" = None  # the second grid

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
        """Remarks on the table as a whole, a sentence each."""
        if self.layout.kind == "budgets":
            return ["Edges are counted per injected node, as GRB's attacks do."]
        lines = list(self.remarks)
        if self.layout.kind == "accuracy":
            lines += describe_stand_ins(entry.keys["dataset"] for _, _, entry in self)
        if self.layout.kind == "time":
            records = {id(run.record): run.record for _, _, entry in self for run in entry.runs}
            states = list(self.states)
            place = 1 if self.smoke else 0  # behind the line that says so
            lines[place:place] = describe_times(self.layout, list(records.values()), states)
        if set(self.states) == {"not run"}:
            variant = f" fidelity={self.fidelity}" if self.fidelity != "paper" else ""
            variant += " scale=smoke" if self.smoke else ""
            command = f"python -m robust_diffusion.run experiment={self.layout.experiment}{variant}"
            return [*lines, f"{command} runs it."]
        return lines

    @property
    def title(self) -> str:
        """Number, words and label, and what the numbers are worth."""
        title = f"{self.layout.name} ({self.layout.label}), arXiv:2209.07754"
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


def build_tables(records: RecordSet) -> dict[int, PaperTable]:
    """Every table of the paper, by its number; as `build_table`."""
    return {number: build_table(load_layout(number), records) for number in table_numbers()}


def build_table(layout: Layout, records: RecordSet) -> PaperTable:
    """Fill a layout from the records that count; an entry without a number says why."""
    cells = records.cells(layout.experiment)
    layout = fit_layout(layout, cells)
    smoke = records.scale == "smoke"
    grids = mark_fewer_seeds([_measured(part, cells, records) for part in layout.parts])
    if not smoke and layout.kind == "accuracy":
        grids = [compare_entries(grid, runs=ASSUMED_RUNS) for grid in grids]
    grids = [rank_entries(grid, part.best) for grid, part in zip(grids, layout.parts, strict=True)]
    entries = [entry for grid in grids for row in grid for entry in row]
    variant = records.scale, records.fidelity or "paper"
    states, remarks = Counter(entry.state for entry in entries), describe(layout, entries, records)
    table = None
    for part, grid in zip(reversed(layout.parts), reversed(grids), strict=True):
        table = PaperTable(part, tuple(map(tuple, grid)), *variant, states, remarks, table)
    assert table is not None
    return table


def _measured(layout: Layout, cells: Sequence[Cell], records: RecordSet) -> Grid:
    return [
        [_entry(layout, row, column, cells, records) for column in layout.columns]
        for row in layout.rows
    ]


def _entry(
    layout: Layout, row: Line, column: Line, cells: Sequence[Cell], records: RecordSet
) -> Entry:
    line, printed = layout.at(row, column), layout.printed(row, column)
    if layout.kind == "budgets":
        return Entry(line.keys, CLEAN, printed, "measured", mean=_configured_budget(line))
    timed = layout.kind == "time"
    graph = CLEAN if timed else line.printed["attack"]
    found = select(cells, line.record, graph, timed=timed)
    comparable = records.scale != "smoke"
    entry = measure(line.keys, graph, printed, found, comparable=comparable, timed=timed)
    return replace(entry, marks=(*entry.marks, *outdone(entry, records.by_model)))


def _configured_budget(line: Line) -> float:
    dataset, limit = line.keys["dataset"], line.keys["limit"]
    config = OmegaConf.load(CONFIG_DIR / "dataset" / f"{dataset}.yaml")
    return float(config.budget[limit])
