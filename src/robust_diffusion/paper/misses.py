"""Entries that lie further from the printed mean than the spread over seeds explains."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from robust_diffusion.paper.entry import BAND
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.render_markdown import aligned
from robust_diffusion.paper.wording import difference, ours, theirs
from robust_diffusion.results.numbers import MINUS, p_value


@dataclass(frozen=True)
class Miss:
    """One entry, in words.

    Args:
        table: Number of its table.
        place: Its place in the table, row by row, from 0.
        row: Its row.
        column: Its column.
        ours: What was measured.
        theirs: What is printed.
        difference: Ours less theirs.
        deviations: The same in pooled standard deviations.
        p: Corrected p-value.
    """

    table: int
    place: int
    row: str
    column: str
    ours: str
    theirs: str
    difference: str
    deviations: float
    p: str


@dataclass(frozen=True)
class Agreement:
    """How the entries of tables compare with the paper.

    Args:
        missed: Those beyond two pooled standard deviations, the furthest first.
        agreeing: Per number of a table with entries that can be compared, those within.
        undecided: Number of measured entries of one seed, or whose printed number has no deviation.
        different: Of the entries, each that tables share counted once: how many agree, and how
            many there are.
    """

    missed: tuple[Miss, ...]
    agreeing: dict[int, int]
    undecided: int
    different: tuple[int, int]

    @property
    def within(self) -> int:
        """Number of entries within two pooled standard deviations."""
        return sum(self.agreeing.values())


def agreement(tables: Sequence[PaperTable]) -> Agreement:
    """Find the entries that miss the paper's value.

    Args:
        tables: Of one reading.
    """
    missed: list[Miss] = []
    agreeing: dict[int, int] = {}
    undecided = 0
    agrees: dict[Hashable, bool] = {}
    for table in tables:
        number = table.layout.number
        for place, (row, column, entry) in enumerate(table):
            if table.layout.kind == "budgets" or entry.difference is None:
                continue
            if entry.deviations is None:
                undecided += 1
                continue
            agreeing[number] = agreeing.get(number, 0) + (not entry.missed)
            cells = frozenset(run.record["cell"] for run in entry.runs)
            agrees[cells, entry.graph, entry.printed.mean] = not entry.missed
            if entry.missed:
                missed.append(
                    Miss(
                        table=number,
                        place=place,
                        row=row.label,
                        column=column.label,
                        ours=ours(entry, table.decimals),
                        theirs=theirs(entry, table.decimals),
                        difference=difference(entry, table.decimals),
                        deviations=entry.deviations,
                        p="-" if entry.p_holm is None else p_value(entry.p_holm),
                    )
                )
    missed.sort(key=lambda miss: -abs(miss.deviations))
    different = sum(agrees.values()), len(agrees)
    return Agreement(tuple(missed), agreeing, undecided, different)


def render_agreement(readings: Mapping[str, Sequence[PaperTable]]) -> str:
    """In Markdown: how many entries agree with the paper, and each that does not.

    Args:
        readings: Per reading of the paper its tables.
    """
    found = {reading: agreement(tables) for reading, tables in readings.items()}
    numbers = sorted({number for one in found.values() for number in one.agreeing})
    counts = [
        [reading, *(_count(one, n) for n in numbers), *_totals(one)]
        for reading, one in found.items()
    ]
    lines = [
        "**Agreement with the paper.** An entry agrees if its mean lies within "
        f"{BAND:g} pooled standard deviations, sqrt((s_here² + s_paper²) / 2), of the printed one. "
        "That is a band, which does not narrow with more seeds, and no test; of two samples of "
        "five from one distribution, one pair in 75 lies further apart. What several tables share "
        "counts in each of them, and in the last column once.",
        "",
        *aligned(["Reading", *(f"Table {n}" for n in numbers), "All", "Once each"], counts, left=1),
    ]
    headings = ["Table", "Entry", "Here", "Paper", "Difference", "In pooled sd"]
    for reading, one in found.items():
        body = [_row(miss) for miss in sorted(one.missed, key=lambda miss: miss.table)]
        if body:
            lines += ["", f"fidelity={reading}, what does not agree:", ""]
            lines += aligned(headings, body, left=2)
        if one.undecided:
            alone = f"{one.undecided} more have one seed or no printed deviation"
            lines += ["", f"fidelity={reading}: {alone}."]
    return "\n".join(lines) + "\n"


def _count(found: Agreement, table: int) -> str:
    if table not in found.agreeing:
        return "-"
    within = found.agreeing[table]
    return f"{within} of {within + sum(miss.table == table for miss in found.missed)}"


def _totals(found: Agreement) -> list[str]:
    if not found.agreeing:
        return ["-", "-"]
    within, different = found.different
    return [f"{found.within} of {found.within + len(found.missed)}", f"{within} of {different}"]


def _row(miss: Miss) -> list[str]:
    away = f"{miss.deviations:+.1f}".replace("-", MINUS)
    entry = f"{miss.row}, {miss.column}"
    return [str(miss.table), entry, miss.ours, miss.theirs, miss.difference, away]
