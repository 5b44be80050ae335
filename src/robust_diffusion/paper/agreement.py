"""Agreement with the paper: entries outside the tolerance, and how many are within."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.wording import difference, measured, reported
from robust_diffusion.results.entry import BAND, Entry
from robust_diffusion.results.markdown import aligned
from robust_diffusion.results.numbers import MINUS, p_value

INTRODUCTION = (
    f"**Agreement with the paper.** Entries whose mean lies within {BAND:g} pooled standard "
    "deviations, sqrt((s_here² + s_paper²) / 2), of the printed one. That is a band, which does "
    "not narrow with more seeds, and no test: the placebo is the share of the printed means of "
    "*other* models in the same row that lie within it. Of two samples of five from one "
    "distribution, one pair in 75 lies further apart. The last two columns count the entries "
    "within 1 and 2 points. An entry that several tables share counts in each of them, and once in "
    '"Once each".'
)

POINTS = (1, 2)
"""Distances, in points, within which entries are counted."""


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
    """Comparison of the entries of tables with the published numbers."""

    outside: tuple[Outlier, ...]  # entries outside the tolerance, the furthest first
    agreeing: dict[int, int]  # number of entries within it, per table
    undecided: int  # entries of one seed, or without a published deviation
    distinct: tuple[int, int]  # entries within and in all, shared ones once
    placebo: tuple[int, int]  # printed means of other models in a row within the band, and in all
    near: tuple[int, ...]  # entries within each of `POINTS`

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
    placebo: list[bool] = []
    differences: list[float] = []
    for table in tables:
        number, decimals = table.layout.number, table.decimals
        for place, (row, column, entry) in enumerate(table):
            if table.layout.kind == "budgets" or entry.difference is None:
                continue
            if entry.deviations is None:
                undecided += 1
                continue
            differences.append(abs(entry.difference))
            placebo += _others_within(table, entry)
            agreeing[number] += not entry.outside_tolerance
            cells = frozenset(run.record["cell"] for run in entry.runs)
            distinct[cells, entry.graph, entry.reported.mean] = not entry.outside_tolerance
            if entry.outside_tolerance:
                outlier = Outlier(
                    *(number, place, row.label, column.label),
                    *(measured(entry, decimals), reported(entry, decimals)),
                    difference(entry, decimals),
                    "-" if entry.p_holm is None else p_value(entry.p_holm),
                    entry.deviations,
                )
                outside.append(outlier)
    outside.sort(key=lambda outlier: -abs(outlier.deviations))
    counted = sum(distinct.values()), len(distinct)
    near = tuple(sum(one <= points for one in differences) for points in POINTS)
    others = sum(placebo), len(placebo)
    return Agreement(tuple(outside), dict(agreeing), undecided, counted, others, near)


def _others_within(table: PaperTable, own: Entry) -> list[bool]:
    """Per other model that the paper has in the entry's row: is its printed mean in the band."""
    row, band = {**own.keys, "model": ""}, BAND * (own.pooled or 0.0)
    return [
        abs((own.mean or 0.0) - other.reported.mean) <= band
        for _, _, other in table
        if other is not own and {**other.keys, "model": ""} == row
        if other.reported.mean is not None
    ]


def render_agreement(variants: Mapping[str, Sequence[PaperTable]]) -> str:
    """Counts per variant and table, and every entry outside the tolerance, in Markdown."""
    found = {name: agreement(tables) for name, tables in variants.items()}
    numbers = sorted({number for one in found.values() for number in one.agreeing})
    header = ["Variant", *(f"Table {number}" for number in numbers), "All", "Once each"]
    header += ["Placebo", *(f"{points} point{'s' if points > 1 else ''}" for points in POINTS)]
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
    shown = [f"{within} of {total}" if total else "-" for within, total in pairs]
    inside, others = found.placebo
    shown.append(f"{inside / others:.1%}".replace("%", " %") if others else "-")
    return [*shown, *(str(number) for number in found.near)]


def _row(outlier: Outlier) -> list[str]:
    entry = f"{outlier.row}, {outlier.column}"
    away = f"{outlier.deviations:+.1f}".replace("-", MINUS)
    numbers = [outlier.measured, outlier.reported, outlier.difference, away]
    return [str(outlier.table), entry, *numbers]
