"""`robust-diffusion leaderboard`: models by worst case, as a page and as JSON."""

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import nn

from robust_diffusion.attacks import AutoInjection
from robust_diffusion.cells.overrides import composed
from robust_diffusion.commands.reading import add_records_option, read_chosen
from robust_diffusion.config import PUBLISHED
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import DataError, RobustDiffusionError
from robust_diffusion.results.leaderboard.board import boards, published, render
from robust_diffusion.results.leaderboard.check import Entry, ReportCheck
from robust_diffusion.robustness.load import (
    load_checkpoint,
    set_up_process,
    train_composed,
)
from robust_diffusion.robustness.zoo import Zoo
from robust_diffusion.system.files import write_whole

RECORDS = PUBLISHED / "results" / "records.jsonl.gz"
"""The published records."""


def run_leaderboard_command(arguments: Sequence[str]) -> None:
    """Write the leaderboard; exits with 1 if a report was refused.

    Raises:
        DataError: Records that are missing or damaged, a damaged zoo, or weights of another model.
        ConfigError: A model that cannot be built, or a folder that cannot be written.
    """
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if (chosen.model is None) != (chosen.weights is None) or (chosen.model and chosen.training):
        parser.error("--model and --weights: name both, or neither, or --training alone")
    records = chosen.records or ([RECORDS] if RECORDS.is_file() else None)
    counted = published(read_chosen(records, required=True))
    own: Callable[[GraphDataModule], nn.Module] | None = None
    if chosen.training:
        own = partial(_trained, chosen.training)
    elif chosen.model:
        own = partial(load_checkpoint, {"_target_": chosen.model}, path=chosen.weights)
    attack = None if chosen.no_attack else AutoInjection()
    check = ReportCheck(counted, _zoo(chosen.zoo), own, chosen.training, attack)
    reports: list[Entry] = []
    refused = False
    for folder in chosen.report:
        try:
            reports.append(check(folder))
        except RobustDiffusionError as error:
            refused = True
            sys.stderr.write(f"refused: {folder}: {' '.join(str(error).split())}\n")
    made = boards(counted, reports)
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
    if refused:
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-diffusion leaderboard",
        description="Rank models by their worst case, from the published records and from reports "
        "of your own. A report is checked by the graphs that it carries: what they spend is "
        "counted, and the model is run on them. A model of your own is attacked by auto, and takes "
        "a rank if its training is repeated here (--training). Nothing in a report is run.",
    )
    parser.add_argument(
        "--report",
        action="append",
        default=[],
        type=Path,
        metavar="FOLDER",
        help="a folder of RobustnessReport.save(); may be repeated",
    )
    parser.add_argument(
        "--model",
        metavar="path.to.Class",
        help="your own model, of which a report tells: a class or function, called with "
        "in_channels and out_channels",
    )
    parser.add_argument(
        "--weights", type=Path, metavar="FILE", help="its state_dict(), as safetensors"
    )
    parser.add_argument(
        "--training",
        default="",
        metavar="OVERRIDES",
        help="or the cell that trains it, such as 'flow=heat seed=3': it is trained anew",
    )
    parser.add_argument(
        "--no-attack", action="store_true", help="enter your own model as claimed, unranked"
    )
    parser.add_argument(
        "--zoo", type=Path, metavar="FOLDER", help="(default: that of load_model, if it is there)"
    )
    add_records_option(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/leaderboard"),
        metavar="FOLDER",
        help="for leaderboard.html and leaderboard.json (default: %(default)s)",
    )
    return parser


def _zoo(named: Path | None) -> Zoo:
    """The zoo that was named, or the default one, which may be missing."""
    try:
        return Zoo.open(named)
    except DataError as error:
        if named is None and isinstance(error.__cause__, FileNotFoundError):
            return Zoo(Path(), [])
        raise


def _trained(training: str, datamodule: GraphDataModule) -> nn.Module:
    """The model that a cell of these overrides trains, anew."""
    cfg, _ = composed([f"dataset={datamodule.name}", *shlex.split(training)])
    set_up_process(cfg.threads, cfg.backend)
    with TemporaryDirectory() as folder:
        return train_composed(cfg, datamodule, description=training, store=folder).model
