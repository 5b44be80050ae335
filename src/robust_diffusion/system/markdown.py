"""Markdown tables whose columns also line up as plain text."""

import re
import unicodedata
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd  # half a second


def aligned(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int]
) -> list[str]:
    """Return a table's lines, the columns `left` by number aligned to the left, others right."""
    cells = [
        ["<br>".join(map(_plain, cell.splitlines())) for cell in row] for row in [header, *rows]
    ]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    pads = [str.ljust if i in left else str.rjust for i in range(len(header))]
    rule = ["-" * (width - 1) + "-:"[i not in left] for i, width in enumerate(widths)]
    padded = (
        [pad(text, width) for pad, text, width in zip(pads, row, widths, strict=True)]
        for row in [cells[0], rule, *cells[1:]]
    )
    return [f"| {' | '.join(row)} |" for row in padded]


def markdown_table(frame: "pd.DataFrame", left: Collection[str]) -> str:
    """Return a data frame as a table, the columns in `left` aligned to the left, others right."""
    rows = [list(map(str, row)) for row in frame.itertuples(index=False)]
    columns = list(map(str, frame.columns))
    return "\n".join(aligned(columns, rows, left=[i for i, c in enumerate(columns) if c in left]))


def _plain(text: str) -> str:
    """Neutralise what would end the cell, open an HTML tag, or steer a terminal."""
    printable = "".join(c for c in text if unicodedata.category(c) != "Cc")
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", printable).replace("|", "\\|")
