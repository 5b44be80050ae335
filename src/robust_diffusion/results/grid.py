"""Grids of entries: seeds compared, numbers tested, the best ranked."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from robust_diffusion.results.entry import Entry, Mark, Test
from robust_diffusion.results.significance import holm, one_sample_p, welch_p

Grid = list[list[Entry]]
"""Rows of entries."""

Best = Literal["row", "column", "none"]


def mark_fewer_seeds(grids: list[Grid]) -> list[Grid]:
    """Mark entries with fewer seeds than others of the same grids have."""
    most = max((entry.n for rows in grids for row in rows for entry in row), default=0)

    def marked(entry: Entry) -> Entry:
        if not 0 < entry.n < most:
            return entry
        return replace(entry, marks=(*entry.marks, Mark("seeds", f"{entry.n} of {most} seeds")))

    return [[[marked(entry) for entry in row] for row in rows] for rows in grids]


def compare_entries(rows: Grid, *, runs: int) -> Grid:
    """Test every accuracy against its reported number of `runs` runs, Holm-corrected."""
    tested = [[_test(entry, runs) for entry in row] for row in rows]
    corrected = iter(holm([entry.p for row in tested for entry in row if entry.p is not None]))
    return [
        [entry if entry.p is None else replace(entry, p_holm=next(corrected)) for entry in row]
        for row in tested
    ]


def _test(entry: Entry, runs: int) -> Entry:
    reported, values = entry.reported, [run.value for run in entry.runs]
    if reported.mean is None:
        return entry
    test: Test
    if reported.std is None:
        test, p = "one sample", one_sample_p(values, reported.mean)
    else:
        test, p = "welch", welch_p(values, reported.mean, reported.std, runs)
    return entry if p is None else replace(entry, p=p, test=test)


def rank_entries(rows: Grid, best: Best) -> Grid:
    """Rank the best and the second best entry of each row or column.

    An entry under a misled attack is no bound, and takes no rank.
    """
    if best == "none":
        return rows
    lines = rows if best == "row" else [list(column) for column in zip(*rows, strict=True)]
    ranked = [_ranks(line) for line in lines]
    return ranked if best == "row" else [list(row) for row in zip(*ranked, strict=True)]


def _ranks(line: Sequence[Entry]) -> list[Entry]:
    # Entries that read the same are equally good.
    shown = [
        None if entry.mean is None or entry.is_flagged else round(entry.mean, 2) for entry in line
    ]
    order = sorted({value for value in shown if value is not None}, reverse=True)
    # Of two, the second is only the worst.
    ranks = dict(zip(order, (1, 2) if len(line) > 2 else (1,), strict=False))
    return [
        entry if value is None else replace(entry, rank=ranks.get(value))
        for entry, value in zip(line, shown, strict=True)
    ]
