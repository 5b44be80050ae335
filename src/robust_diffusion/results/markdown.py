"""Tables on the terminal, in Markdown so that they can be pasted."""

from collections.abc import Collection

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def markdown_table(frame: pd.DataFrame, left: Collection[str]) -> Table:
    """A table for Rich to print.

    Args:
        frame: Its cells.
        left: Columns that are aligned to the left; the others to the right.
    """
    # All as Text, since Rich would read a unit such as [ms] as markup.
    table = Table(box=box.MARKDOWN)
    for column in frame.columns:
        table.add_column(Text(column), justify="left" if column in left else "right", no_wrap=True)
    for row in frame.itertuples(index=False):
        table.add_row(*(Text(str(value)) for value in row))
    return table


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
    # Wider than any table: numbers cut off at the edge would be worse than long lines.
    console = Console(width=10_000, highlight=False)
    console.print(title, markup=False)
    console.print(markdown_table(frame, left))
    for note in notes:
        console.print(note, markup=False)
