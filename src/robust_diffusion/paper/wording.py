"""The text of a table's entries and notes."""

import re

from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.results.entry import Entry
from robust_diffusion.results.numbers import places_for, signed, spread

LONGEST_REASON = 30
"""Characters of a reason that fit into a cell; the notes have the whole of it."""


def measured(entry: Entry, decimals: int) -> str:
    """The measured number, or in a few words why there is none."""
    if entry.quartiles is not None and entry.mean is not None:
        places = places_for(entry.mean, digits=3)
        return "{:.{d}f} ({:.{d}f}–{:.{d}f})".format(entry.mean, *entry.quartiles, d=places)
    if entry.state == "measured":
        return spread(entry.mean, entry.std, decimals)
    return entry.state if entry.reason is None else _shortened(entry.reason)


def reported(entry: Entry, decimals: int) -> str:
    """The published number; of times to the tenth of a millisecond that the paper has."""
    return spread(entry.reported.mean, entry.reported.std, 1 if entry.timed else decimals)


def compared(entry: Entry, decimals: int) -> str | None:
    """Measured against reported: a difference, or a factor of times; `None` without either."""
    if entry.factor is not None:
        return f"×{entry.factor:.{places_for(entry.factor, digits=2)}f}"
    return None if entry.difference is None else difference(entry, decimals)


def difference(entry: Entry, decimals: int) -> str:
    """Measured less reported, signed; a dash where one is missing."""
    return "-" if entry.difference is None else signed(entry.difference, decimals)


def row_names(table: PaperTable) -> tuple[str, str, str]:
    """Names of the measured row, the reported one and their comparison."""
    if table.layout.kind == "time":
        return "here", "RTX 3090", "factor"
    return "here", "paper", "difference"


class Notes:
    """The marks of a table by number, from 1 in order of appearance; equal ones share theirs."""

    def __init__(self, table: PaperTable) -> None:
        texts = (mark.text for _, _, entry in table for mark in entry.marks)
        self.texts = list(dict.fromkeys(texts))

    def numbers(self, entry: Entry) -> list[int]:
        """Numbers of an entry's marks."""
        return sorted({self.texts.index(mark.text) + 1 for mark in entry.marks})


def _shortened(reason: str) -> str:
    # The folders of a path say least.
    reason = re.sub(r"[^\s:;,(]*/", "", reason).split(";")[0]
    if len(reason) <= LONGEST_REASON:
        return reason
    # Cut between words where that leaves more than the kind of the failure.
    cut = reason[:LONGEST_REASON]
    words = cut.rpartition(" ")[0].rstrip(" :,")
    return f"{words if len(words) > LONGEST_REASON // 2 else cut[:-1]}…"
