"""Agreement with the paper: entries outside the tolerance, and how many are within."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.wording import difference, measured, reported
from robust_diffusion.results.entry import BAND
from robust_diffusion.results.markdown import aligned
from robust_diffusion.results.numbers import MINUS, p_value

INTRODUCTION = (
    "**Agreement with the paper.** An entry agrees if its mean lies within "
    f"{BAND:g} pooled standard deviations, sqrt((s_here² + s_paper²) / 2), of the published one. "
    "That is a band, which does not narrow with more seeds, and no test; of two samples of "
    "five from one distribution, one pair in 75 lies further apart. An entry that several tables "
    "share counts in each of them, and in the last column once."
)


@dataclass(frozen=True)
class Outlier:
    """An entry outside the tolerance, in words.

    `place` counts the entries of its table row by row from 0; `difference` is measured less
    reported, `deviations` the same in pooled standard deviations, and `p` corrected.
    """

    table: int
    place: int
    row: str
    column: str
    measured: str
    reported: str
    difference: str
    p: str
    deviations: float


@dataclass(frozen=True)
class Agreement:
    """Comparison of the entries of tables with the published numbers.

    Args:
        outside: Entries outside the tolerance, the furthest first.
        agreeing: Number of entries within it, per number of a table that has comparable ones.
        undecided: Number of measured entries of one seed, or without a published deviation.
        distinct: Number of entries within, and of all, each that tables share counted once.
    """

    outside: tuple[Outlier, ...]
    agreeing: dict[int, int]
    undecided: int
    distinct: tuple[int, int]

    @property
    def within(self) -> int:
        """Number of entries within the tolerance."""
        return sum(self.agreeing.values())


def agreement(tables: Sequence[PaperTable]) -> Agreement:
    """Compare tables of one variant with the paper, entry by entry."""
    outside: list[Outlier] = []
    agreeing: Counter[int] = Counter()
    undecided = 0
    distinct: dict[Hashable, bool] = {}
    for table in tables:
        number, decimals = table.layout.number, table.decimals
        for place, (row, column, entry) in enumerate(table):
            if table.layout.kind == "budgets" or entry.difference is None:
                continue
            if entry.deviations is None:
                undecided += 1
                continue
            agreeing[number] += not entry.outside_tolerance
            cells = frozenset(run.record["cell"] for run in entry.runs)
            distinct[cells, entry.graph, entry.reported.mean] = not entry.outside_tolerance
            if entry.outside_tolerance:
                outlier = Outlier(
                    number,
                    place,
                    row.label,
                    column.label,
                    measured(entry, decimals),
                    reported(entry, decimals),
                    difference(entry, decimals),
                    "-" if entry.p_holm is None else p_value(entry.p_holm),
                    entry.deviations,
                )
                outside.append(outlier)
    outside.sort(key=lambda outlier: -abs(outlier.deviations))
    counted = sum(distinct.values()), len(distinct)
    return Agreement(tuple(outside), dict(agreeing), undecided, counted)


def render_agreement(variants: Mapping[str, Sequence[PaperTable]]) -> str:
    """Counts per variant and table, and every entry outside the tolerance, in Markdown.

    Args:
        variants: The tables of each variant.
    """
    found = {name: agreement(tables) for name, tables in variants.items()}
    numbers = sorted({number for one in found.values() for number in one.agreeing})
    header = ["Variant", *(f"Table {number}" for number in numbers), "All", "Once each"]
    counts = [[name, *_counts(one, numbers)] for name, one in found.items()]
    lines = [INTRODUCTION, "", *aligned(header, counts, left=1)]
    header = ["Table", "Entry", "Here", "Paper", "Difference", "In pooled sd"]
    for name, one in found.items():
        rows = [_row(outlier) for outlier in sorted(one.outside, key=lambda o: o.table)]
        if rows:
            lines += ["", f"fidelity={name}, outside the tolerance:", ""]
            lines += aligned(header, rows, left=2)
        if one.undecided:
            alone = f"{one.undecided} more have one seed or no published deviation"
            lines += ["", f"fidelity={name}: {alone}."]
    return "\n".join(lines) + "\n"


def _counts(found: Agreement, numbers: Sequence[int]) -> list[str]:
    outside = Counter(outlier.table for outlier in found.outside)
    pairs = [
        (found.agreeing[n], found.agreeing[n] + outside[n]) if n in found.agreeing else (0, 0)
        for n in numbers
    ]
    pairs += [(found.within, found.within + len(found.outside)), found.distinct]
    return [f"{within} of {total}" if total else "-" for within, total in pairs]


def _row(outlier: Outlier) -> list[str]:
    entry = f"{outlier.row}, {outlier.column}"
    away = f"{outlier.deviations:+.1f}".replace("-", MINUS)
    numbers = [outlier.measured, outlier.reported, outlier.difference, away]
    return [str(outlier.table), entry, *numbers]
