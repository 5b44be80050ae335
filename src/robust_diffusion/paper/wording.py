"""How the entries of a table read, in whatever format."""

import re

from robust_diffusion.paper.entry import Entry
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.results.numbers import places_for, signed, spread

LONGEST_REASON = 30
"""Characters of a reason that fit into a cell; the notes have the whole of it."""


def ours(entry: Entry, decimals: int) -> str:
    """The measured number, or in a few words why there is none.

    Args:
        entry: The entry.
        decimals: Digits behind the point.
    """
    if entry.quartiles is not None and entry.mean is not None:
        places = places_for(entry.mean, digits=3)
        return "{:.{d}f} ({:.{d}f}–{:.{d}f})".format(entry.mean, *entry.quartiles, d=places)
    if entry.state == "measured":
        return spread(entry.mean, entry.std, decimals)
    reason = entry.reason
    if reason is None:
        return entry.state
    # The folders of a path say least; the notes have the whole of it.
    reason = re.sub(r"[^\s:;,(]*/", "", reason).split(";")[0]
    if len(reason) <= LONGEST_REASON:
        return reason
    # Cut between words where that leaves more than the kind of the failure.
    cut = reason[:LONGEST_REASON]
    words = cut.rpartition(" ")[0].rstrip(" :,")
    return f"{words if len(words) > LONGEST_REASON // 2 else cut[:-1]}…"


def theirs(entry: Entry, decimals: int) -> str:
    """The printed number.

    Args:
        entry: The entry.
        decimals: Digits behind the point.
    """
    # The paper has its times to a tenth of a millisecond.
    return spread(entry.printed.mean, entry.printed.std, 1 if entry.timed else decimals)


def one_run(entry: Entry, value: float, decimals: int) -> str:
    """The number of one seed.

    Args:
        entry: The entry.
        value: In the table's unit.
        decimals: Digits behind the point.
    """
    return f"{value:.{places_for(value, digits=3) if entry.timed else decimals}f}"


def compared(entry: Entry, decimals: int) -> str | None:
    """How ours compares with theirs: a difference, or of times a factor; `None` if it does not.

    Args:
        entry: The entry.
        decimals: Digits behind the point.
    """
    if entry.factor is not None:
        return f"×{entry.factor:.{places_for(entry.factor, digits=2)}f}"
    return None if entry.difference is None else difference(entry, decimals)


def difference(entry: Entry, decimals: int) -> str:
    """Ours less theirs, signed; a dash where one is missing.

    Args:
        entry: The entry.
        decimals: Digits behind the point.
    """
    if entry.difference is None:
        return "-"
    return signed(entry.difference, decimals)


def row_names(table: PaperTable) -> tuple[str, str, str]:
    """What the rows of ours, of theirs and of how they compare are called.

    Args:
        table: The table.
    """
    if table.layout.kind == "time":
        return "here", "RTX 3090", "factor"
    return "here", "paper", "difference"


class Notes:
    """Numbers the marks of a table, equal ones alike, in the order in which they are met.

    Args:
        table: The table.
    """

    def __init__(self, table: PaperTable) -> None:
        texts = (mark.text for _, _, entry in table for mark in entry.marks)
        self.texts = list(dict.fromkeys(texts))

    def numbers(self, entry: Entry) -> list[int]:
        """Numbers of an entry's marks, from 1."""
        return sorted({self.texts.index(mark.text) + 1 for mark in entry.marks})
