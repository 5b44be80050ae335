"""The numbers that the paper prints, from `printed.csv` beside this file."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from robust_diffusion.errors import ConfigError
from robust_diffusion.results.entry import Reported

PRINTED = Path(__file__).with_name("printed.csv")

ASSUMED_RUNS = 5
"""Runs behind a printed mean and deviation; the paper says 5 to 10, so this is the cautious end."""


@dataclass(frozen=True)
class PrintedNumber(Reported):
    """An entry of one of the paper's tables."""

    row: int = -1  # place in the file; -1 of what is not printed


NOT_PRINTED = PrintedNumber()
"""Published number of an entry that the paper does not have."""


@cache
def printed_rows() -> tuple[dict[str, str], ...]:
    """Every row of the file, as text."""
    with PRINTED.open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


@cache
def _rows_of(table: str | None) -> tuple[tuple[int, dict[str, str]], ...]:
    """The rows of one table, or of all, each with its place in the file."""
    rows = enumerate(printed_rows())
    return tuple((i, row) for i, row in rows if table in (None, row["table"]))


def printed_number(where: Mapping[str, str]) -> PrintedNumber:
    """The one entry with these texts in its columns.

    None, or more than one, is a `ConfigError`.
    """
    found = [
        (i, row)
        for i, row in _rows_of(where.get("table"))
        if all(row[column] == text for column, text in where.items())
    ]
    if len(found) != 1:
        wanted = ", ".join(f"{column}={text}" for column, text in where.items())
        raise ConfigError(f"table: {len(found)} printed numbers with {wanted}; name exactly one")
    ((i, row),) = found
    nodes, edges = row["budget_nodes"], row["budget_edges"]
    return PrintedNumber(
        row=i,
        mean=float(row["mean"]) if row["mean"] else None,
        std=float(row["std"]) if row["std"] else None,
        budget=(int(nodes), int(edges)) if nodes.isdigit() and edges.isdigit() else None,
    )
