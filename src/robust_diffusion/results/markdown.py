"""Markdown tables whose columns also line up as plain text."""

import sys
from collections.abc import Collection, Sequence

import pandas as pd


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """The lines of a table.

    Args:
        header: Headings.
        rows: Cells, as many per row as there are headings.
        left: Number of leading columns that are aligned to the left; the others to the right.
    """
    return _lines(header, rows, [i < left for i in range(len(header))])


def markdown_table(frame: pd.DataFrame, left: Collection[str]) -> str:
    """A data frame as a table.

    Args:
        frame: Its cells.
        left: Columns that are aligned to the left; the others to the right.
    """
    rows = [list(map(str, row)) for row in frame.itertuples(index=False)]
    columns = list(map(str, frame.columns))
    return "\n".join(_lines(columns, rows, [column in left for column in columns]))


def print_table(
    title: str, frame: pd.DataFrame, left: Collection[str], notes: Collection[str] = ()
) -> None:
    """Print a title and a table on standard output.

    Args:
        title: One line.
        frame: The table's cells.
        left: Columns that are aligned to the left.
        notes: Lines below the table.
    """
    lines = [title, "", markdown_table(frame, left), "", *notes]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _lines(header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[bool]) -> list[str]:
    # A line break or a bar would end the row or the cell.
    cells = [
        [" ".join(cell.splitlines()).replace("|", "\\|") for cell in row] for row in [header, *rows]
    ]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    pads = [str.ljust if to_left else str.rjust for to_left in left]
    ends = ["-" if to_left else ":" for to_left in left]
    rule = ["-" * (width - 1) + end for width, end in zip(widths, ends, strict=True)]
    padded = (
        [pad(text, width) for pad, text, width in zip(pads, row, widths, strict=True)]
        for row in [cells[0], rule, *cells[1:]]
    )
    return [f"| {' | '.join(row)} |" for row in padded]
