"""`robust-diffusion leaderboard`: models ranked by their worst cases over budgets."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robust_diffusion.commands.reading import add_records_option, read_chosen
from robust_diffusion.config import PUBLISHED, PUBLISHED_RECORDS
from robust_diffusion.records.submission import read_submissions
from robust_diffusion.results.frame import narrow_frame
from robust_diffusion.results.leaderboard import (
    BOARDS,
    board_records,
    budgets_of,
    known_model,
    leaderboard,
    with_submissions,
)
from robust_diffusion.results.show import Table, show
from robust_diffusion.system.numbers import MINUS

if TYPE_CHECKING:
    import pandas as pd


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
    records = read_chosen(chosen.records or [PUBLISHED_RECORDS], required=True)
    index = Path(os.environ.get("ROBUST_DIFFUSION_ZOO") or PUBLISHED / "zoo") / "index.json"
    frame = with_submissions(narrow_frame(board_records(records)), read_submissions(index))
    table = leaderboard(frame, chosen.budget, BOARDS)
    if table.empty:
        sys.stdout.write(
            "no run at these budgets has the attack auto on a model that it knows; "
            "python -m robust_diffusion.run threat=white_box attack=auto adds one\n"
        )
    elif chosen.format == "csv":
        sys.stdout.write(table.round(4).to_csv(index=False))
    else:
        for _, board in table.groupby(["dataset", "features"], sort=False):
            _print_board(board)


def _print_board(board: "pd.DataFrame") -> None:
    """Print one board as a Markdown table."""
    first, budgets = board.iloc[0], [*budgets_of(board)]
    variants = [] if len({*board["variant"]}) == 1 else ["variant"]
    shown = board[["rank", "model", *variants, "seeds", "clean", "transferred", *budgets]].copy()
    shown["rank"] = shown["rank"].astype(object).where(~board["control"], "control")
    shown["model"] = board["model"].map(lambda model: known_model(model).name)
    shown["above MLP"] = board["above_mlp"]
    shown[["by", "flags"]] = board[["by", "flags"]]
    shown["not ranked, because"] = board["reason"]
    variant = f"{first['variant']}, " if not variants else ""
    title = f"{first['dataset']}, {variant}{first['features'].replace('-', MINUS)}: accuracy in % "
    title += "under the best known attack within each budget (injected nodes x edges of each), "
    title += "which is not a bound, and the area above an MLP in points"
    table = Table("", shown, title, formats={"above MLP": "{:+.2f}"})
    sys.stdout.write(f"{show(table)}\n")


def _budget(text: str) -> tuple[int, int]:
    if not (match := re.fullmatch(r"(\d{1,9})x(\d{1,9})", text)):
        raise argparse.ArgumentTypeError(f"expected NODESxEDGES such as 50x50, got {text}")
    return int(match[1]), int(match[2])
