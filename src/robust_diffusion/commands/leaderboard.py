"""`robust-diffusion leaderboard`: models ranked by their worst cases over budgets."""

import argparse
import re
import sys
from collections.abc import Sequence

from robust_diffusion.commands.reading import add_records_option, read_chosen
from robust_diffusion.config import PUBLISHED_RECORDS
from robust_diffusion.results.frame import narrow_frame
from robust_diffusion.results.leaderboard import show_leaderboard
from robust_diffusion.results.show import Table, show
from robust_diffusion.results.worst_case import seeks_worst_case


def run_leaderboard_command(arguments: Sequence[str]) -> None:
    """Print the leaderboard; raise a `DataError` if a file is missing or damaged."""
    parser = argparse.ArgumentParser(
        prog="robust-diffusion leaderboard",
        description="Rank models by the area between their worst cases and the MLP's, over budgets "
        "of growing size, from the published records or yours.",
    )
    add_records_option(parser, "the published ones")
    text = "injected nodes and edges of each, as 50x50; may be repeated (default: 5x4, 1x50, "
    text += "50x4, 5x50 and 50x50, as far as the records have them)"
    parser.add_argument("--budget", action="append", type=_budget, metavar="NODESxEDGES", help=text)
    parser.add_argument("--format", choices=["markdown", "csv"], default="markdown")
    chosen = parser.parse_args(arguments)
    named = chosen.records or [PUBLISHED_RECORDS]
    records = filter(seeks_worst_case, read_chosen(named, required=True))
    tables = show_leaderboard(narrow_frame(records), chosen.budget)
    for table in tables:
        if chosen.format == "csv":
            sys.stdout.write(table.cells.to_csv(index=False))
        else:
            sys.stdout.write(f"{show(Table('', table.cells, table.title))}\n")
    if not tables:
        sys.stdout.write(
            "no run at these budgets has the attack auto on a model that it knows; "
            "python -m robust_diffusion.run threat=white_box attack=auto adds one\n"
        )


def _budget(text: str) -> tuple[int, int]:
    if not (match := re.fullmatch(r"(\d{1,9})x(\d{1,9})", text)):
        raise argparse.ArgumentTypeError(f"expected NODESxEDGES such as 50x50, got {text}")
    return int(match[1]), int(match[2])
