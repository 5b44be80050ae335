"""One of the paper's tables, made of records alone: ours beside the printed numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from omegaconf import OmegaConf

from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.evaluation.records import Record
from robust_diffusion.report.cells import CLEAN, Cell, cells_of, select
from robust_diffusion.report.entry import Entry, Mark, Test, measure
from robust_diffusion.report.header import Header, describe
from robust_diffusion.report.layout import Layout, Line
from robust_diffusion.report.printed import ASSUMED_RUNS
from robust_diffusion.report.significance import holm, one_sample_p, welch_p


@dataclass(frozen=True)
class PaperTable:
    """A table, ready to be shown.

    Args:
        layout: Captions, headings, rows and columns.
        scale: full, or smoke, whose numbers say nothing about the paper.
        fidelity: Which reading of the paper was run.
        entries: Per row of the layout, per column its entry.
        header: What all entries have in common.
    """

    layout: Layout
    scale: str
    fidelity: str
    entries: tuple[tuple[Entry, ...], ...]
    header: Header

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
        if set(self.header.states) == {"not run"}:
            smoke = " scale=smoke" if self.smoke else ""
            command = f"python -m robust_diffusion.run experiment={self.layout.experiment}{smoke}"
            return [*self.header.lines, f"{command} runs it."]
        return self.header.lines

    @property
    def title(self) -> str:
        """Number and label, and what the numbers are worth."""
        title = f"Table {self.layout.number} ({self.layout.label}), arXiv:2209.07754"
        return f"{title}; SMOKE RUN, not comparable with the paper" if self.smoke else title

    def __iter__(self) -> Iterator[tuple[Line, Line, Entry]]:
        """Row, column and entry, row by row."""
        for row, entries in zip(self.layout.rows, self.entries, strict=True):
            for column, entry in zip(self.layout.columns, entries, strict=True):
                yield row, column, entry


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
    rows = [
        [_entry(layout, row, column, cells, smoke=scale == "smoke") for column in layout.columns]
        for row in layout.rows
    ]
    rows = _marked_seeds(rows)
    if scale != "smoke":
        rows = _tested(rows)
    rows = _ranked(rows, layout)
    return PaperTable(
        layout=layout,
        scale=scale,
        fidelity=fidelity,
        entries=tuple(map(tuple, rows)),
        header=describe(
            layout,
            [(entry.graph, run.record) for row in rows for entry in row for run in entry.runs],
            states=[entry.state for row in rows for entry in row],
            comparisons=sum(entry.p is not None for row in rows for entry in row),
            scale=scale,
            fidelity=fidelity,
        ),
    )


def _entry(layout: Layout, row: Line, column: Line, cells: Sequence[Cell], *, smoke: bool) -> Entry:
    line, printed = layout.at(row, column), layout.printed(row, column)
    if layout.kind == "budgets":
        return Entry(line, CLEAN, printed, "measured", mean=_configured_budget(line))
    graph = line.printed["attack"]
    return measure(line, graph, printed, select(cells, line, graph), comparable=not smoke)


def _configured_budget(line: Line) -> float:
    dataset, limit = line.keys["dataset"], line.keys["limit"]
    config = OmegaConf.load(CONFIG_DIR / "dataset" / f"{dataset}.yaml")
    return float(config.budget[limit])


def _marked_seeds(rows: list[list[Entry]]) -> list[list[Entry]]:
    """Mark entries with fewer seeds than others have."""
    most = max((entry.n for row in rows for entry in row), default=0)

    def marked(entry: Entry) -> Entry:
        if not 0 < entry.n < most:
            return entry
        return replace(entry, marks=(*entry.marks, Mark("seeds", f"{entry.n} of {most} seeds")))

    return [[marked(entry) for entry in row] for row in rows]


def _tested(rows: list[list[Entry]]) -> list[list[Entry]]:
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


def _ranked(rows: list[list[Entry]], layout: Layout) -> list[list[Entry]]:
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
