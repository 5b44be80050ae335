"""The numbers that the paper prints, from `printed.csv` beside this file."""

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from robust_diffusion.errors import ConfigError
from robust_diffusion.results.entry import Reported

PRINTED = Path(__file__).with_name("printed.csv")

ASSUMED_RUNS = 5
"""Runs behind a printed mean and deviation; the paper says 5 to 10, so this is the cautious end."""


NOT_PRINTED = Reported()
"""Published number of an entry that the paper does not have."""


@cache
def printed_rows() -> tuple[dict[str, str], ...]:
    """Every row of the file, as text."""
    with PRINTED.open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def printed_number(where: Mapping[str, str]) -> Reported:
    """The one entry with these texts in its columns.

    None, or more than one, is a `ConfigError`.
    """
    found = [row for row in printed_rows() if all(row[key] == of for key, of in where.items())]
    if len(found) != 1:
        wanted = ", ".join(f"{column}={text}" for column, text in where.items())
        raise ConfigError(f"table: {len(found)} printed numbers with {wanted}; name exactly one")
    nodes, edges = found[0]["budget_nodes"], found[0]["budget_edges"]
    mean, std = (float(found[0][key]) if found[0][key] else None for key in ("mean", "std"))
    is_count = nodes.isdigit() and edges.isdigit()
    return Reported(mean, std, (int(nodes), int(edges)) if is_count else None)
