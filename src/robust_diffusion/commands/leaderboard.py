"""`robust-diffusion leaderboard`: models by their curves of worst cases, as a page and as JSON."""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from robust_diffusion.commands.reading import add_records_option, read_chosen
from robust_diffusion.config import PUBLISHED
from robust_diffusion.results.leaderboard.board import boards, published, render
from robust_diffusion.system.files import write_whole


def run_leaderboard_command(arguments: Sequence[str]) -> None:
    """Write the leaderboard.

    Raises:
        DataError: Records that are missing or damaged.
        ConfigError: A folder that cannot be written.
    """
    parser = argparse.ArgumentParser(
        prog="robust-diffusion leaderboard",
        description="Rank models by the area between their worst cases and the MLP's, over budgets "
        "of growing size, from the published records or your own.",
    )
    add_records_option(parser)
    parser.add_argument(
        "--budget",
        action="append",
        type=_budget,
        metavar="NODESxEDGES",
        help="injected nodes and edges of each, as 50x50; may be repeated (default: 5x4, 1x50, "
        "50x4, 5x50 and 50x50, as far as the records have them)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/leaderboard"),
        metavar="FOLDER",
        help="for leaderboard.html and leaderboard.json (default: %(default)s)",
    )
    chosen = parser.parse_args(arguments)
    named = chosen.records or [PUBLISHED / "results" / "records.jsonl.gz"]
    counted = published(read_chosen(named, required=True))
    made = boards(counted, chosen.budget)
    for name, text in render(made).items():
        sys.stdout.write(f"{write_whole(chosen.out / name, text, option='--out')}\n")
    states = Counter(row.state for board in made for row in board.rows)
    counts = ", ".join(f"{count} {state}" for state, count in states.items()) or "no row"
    sys.stdout.write(f"{len(made)} {'board' if len(made) == 1 else 'boards'}: {counts}\n")
    if not counted:
        sys.stdout.write(
            "no cell of the records has the attack auto on a model that it knows, in a full run; "
            "python -m robust_diffusion.run threat=white_box attack=auto adds one\n"
        )


def _budget(text: str) -> tuple[int, int]:
    if not (match := re.fullmatch(r"(\d{1,9})x(\d{1,9})", text)):
        raise argparse.ArgumentTypeError(f"expected NODESxEDGES such as 50x50, got {text}")
    return int(match[1]), int(match[2])
