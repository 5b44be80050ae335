"""One of the paper's tables, measured numbers beside the published ones."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from omegaconf import OmegaConf

from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.paper.fit_layout import fit_layout
from robust_diffusion.paper.layout import (
    ASSUMED_RUNS,
    Grid,
    Layout,
    Line,
    load_layout,
    table_numbers,
)
from robust_diffusion.paper.remarks import remarks, title_of
from robust_diffusion.records.records import Record
from robust_diffusion.results.bounds import stronger_attacks
from robust_diffusion.results.cells import CLEAN, RecordSet, select
from robust_diffusion.results.entry import (
    Entries,
    Entry,
    compare_entries,
    mark_fewer_seeds,
    measure,
    rank_entries,
)


@dataclass(frozen=True)
class PaperTable:
    """A table, ready to be shown."""

    layout: Layout
    grids: tuple[tuple[Grid, Entries], ...]  # of the layout, each with its entries
    records: RecordSet  # that it is made of
    title: str
    lines: Sequence[str]  # remarks on the table as a whole, a sentence each

    def __iter__(self) -> Iterator[tuple[Line, Line, Entry]]:
        """Row, column and entry, row by row, grid by grid."""
        for grid, entries in self.grids:
            for row, of_row in zip(grid.rows, entries, strict=True):
                for column, entry in zip(grid.columns, of_row, strict=True):
                    yield row, column, entry


def build_tables(records: RecordSet) -> dict[int, PaperTable]:
    """Every table of the paper, by its number; as `build_table`."""
    return {number: build_table(load_layout(number), records) for number in table_numbers()}


def build_table(
    layout: Layout, records: RecordSet, datasets: Collection[str] | None = None
) -> PaperTable:
    """Fill a layout from the records that count; an entry without a number says why.

    The rows and columns are those of some `datasets`, or of all.
    """
    cells = records.cells(layout.experiment)
    layout = fit_layout(layout, cells)
    if datasets is not None:
        layout = _cut(layout, datasets)
    grids = []
    for grid in layout.grids:
        lines = [[layout.fixed | row | column for column in grid.columns] for row in grid.rows]
        grids.append([[_entry(layout, of, cells, records) for of in row] for row in lines])
    entries = [entry for of_grid in grids for row in of_grid for entry in row]
    mark_fewer_seeds(entries)
    for grid, of_grid in zip(layout.grids, grids, strict=True):
        if records.scale != "smoke" and layout.kind == "accuracy":
            compare_entries([entry for row in of_grid for entry in row], runs=ASSUMED_RUNS)
        rank_entries(of_grid, grid.best)
    filled = tuple(zip(layout.grids, grids, strict=True))
    said = title_of(layout, records), remarks(layout, entries, records)
    return PaperTable(layout, filled, records, *said)


def _cut(layout: Layout, datasets: Collection[str]) -> Layout:
    def kept(lines: Sequence[Line]) -> tuple[Line, ...]:
        return tuple(line for line in lines if line.keys.get("dataset") in (None, *datasets))

    grids = [replace(of, rows=kept(of.rows), columns=kept(of.columns)) for of in layout.grids]
    return replace(layout, grids=tuple(of for of in grids if of.rows and of.columns))


def _entry(layout: Layout, line: Line, cells: Sequence[Record], records: RecordSet) -> Entry:
    printed = layout.printed(line)
    if layout.kind == "budgets":
        config = OmegaConf.load(CONFIG_DIR / "dataset" / f"{line.keys['dataset']}.yaml")
        limit = float(config.budget[line.keys["limit"]])
        return Entry(line.keys, CLEAN, printed, "measured", mean=limit)
    timed, comparable = layout.kind == "time", records.scale != "smoke"
    graph = CLEAN if timed else line.printed["attack"]
    found = select(cells, line.record, graph, timed=timed)
    entry = measure(line.keys, graph, printed, found, comparable=comparable, timed=timed)
    entry.marks += stronger_attacks(entry, records.by_model)
    return entry
