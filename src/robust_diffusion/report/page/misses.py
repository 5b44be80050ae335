"""Entries that lie further from the printed mean than its deviation explains."""

from collections.abc import Sequence
from dataclasses import dataclass

from robust_diffusion.report.page.embed import cell_id, misses, table_id
from robust_diffusion.report.paper_table import PaperTable
from robust_diffusion.report.wording import difference, ours, p_value, theirs


@dataclass(frozen=True)
class Miss:
    """One entry, in words.

    Args:
        table: Number of its table.
        cell: Id of its cell on the page.
        row: Its row.
        column: Its column.
        ours: What was measured.
        theirs: What is printed.
        difference: Ours less theirs.
        deviations: The same in printed standard deviations.
        p: Corrected p-value.
    """

    table: int
    cell: str
    row: str
    column: str
    ours: str
    theirs: str
    difference: str
    deviations: float
    p: str


@dataclass(frozen=True)
class Comparison:
    """How the entries of all tables compare with the paper.

    Args:
        missed: Those beyond two printed standard deviations, the furthest first.
        within: Number of those within.
        undecided: Number of measured entries whose printed number has no deviation.
    """

    missed: tuple[Miss, ...]
    within: int
    undecided: int


def compare(tables: Sequence[PaperTable]) -> Comparison:
    """Find the entries that miss the paper's value.

    Args:
        tables: As they stand on the page.
    """
    missed: list[Miss] = []
    within = undecided = 0
    for table in tables:
        identity = table_id(table)
        for place, (row, column, entry) in enumerate(table):
            if table.layout.kind == "budgets" or entry.difference is None:
                continue
            if entry.deviations is None:
                undecided += 1
            elif not misses(entry):
                within += 1
            else:
                missed.append(
                    Miss(
                        table=table.layout.number,
                        cell=cell_id(identity, place),
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
    return Comparison(tuple(missed), within, undecided)
