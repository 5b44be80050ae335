"""`robust-diffusion submit`: check a report for the leaderboard, and record what was measured."""

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import nn

from robust_diffusion.attacks import AutoInjection
from robust_diffusion.cells.overrides import composed
from robust_diffusion.commands.leaderboard import add_board_options, board_records
from robust_diffusion.commands.submission import ReportCheck
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import DataError, RobustDiffusionError
from robust_diffusion.records.records import append_record
from robust_diffusion.results.leaderboard.board import boards
from robust_diffusion.results.numbers import signed
from robust_diffusion.robustness.load import load_checkpoint, set_up_process, train_composed
from robust_diffusion.robustness.zoo import Zoo


def run_submit_command(arguments: Sequence[str]) -> None:
    """Check reports and tell their place; exits with 1 if one was refused.

    Raises:
        DataError: Records that are missing or damaged, a damaged zoo, or weights of another model.
        ConfigError: A model that cannot be built, or a file that cannot be written.
    """
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if (chosen.model is None) != (chosen.weights is None) or (chosen.model and chosen.training):
        parser.error("--model and --weights: name both, or neither, or --training alone")
    counted = board_records(chosen.records)
    own: Callable[[GraphDataModule], nn.Module] | None = None
    if chosen.training:
        own = partial(_trained, chosen.training)
    elif chosen.model:
        own = partial(load_checkpoint, {"_target_": chosen.model}, path=chosen.weights)
    attack = None if chosen.no_attack else AutoInjection()
    check = ReportCheck(counted, _zoo(chosen.zoo), own, chosen.training, attack, chosen.budget)
    refused = False
    for folder in chosen.report:
        try:
            found = check(folder)
        except RobustDiffusionError as error:
            refused = True
            sys.stderr.write(f"refused: {folder}: {' '.join(str(error).split())}\n")
            continue
        counted = [*counted, *found]
        for record in found if chosen.to else ():
            append_record(chosen.to, record)
    named = {f"report {folder.resolve().name}" for folder in chosen.report}
    for board in boards(counted, chosen.budget):
        for row in (row for row in board.rows if named & {*row.sources}):
            kept = [
                f"{nodes}x{edges}: {'-' if value is None else f'{value:.2f}'}"
                for (nodes, edges), value in zip(board.points, row.curve, strict=True)
            ]
            place = f"rank {row.rank}" if row.rank else ", ".join([row.state, *row.flags])
            above = "" if row.above_mlp is None else f", {signed(row.above_mlp, 2)} above the MLP"
            sys.stdout.write(f"{board.dataset} {row.model}: {place}{above}; {', '.join(kept)}\n")
            sys.stdout.write(f"  {'; '.join(row.sources)}\n")
    if refused:
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-diffusion submit",
        description="Check reports for the leaderboard, and tell the rows that they make or lower. "
        "Of a report only the graphs are believed: what they spend is counted, and the model is "
        "run on them. A model of your own is attacked by auto at each budget of the board, and "
        "takes a rank if its training is repeated here (--training). Nothing in a report is run.",
    )
    parser.add_argument(
        "report",
        nargs="+",
        type=Path,
        help="a folder of RobustnessReport.save(); its name is shown",
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
    parser.add_argument(
        "--to", type=Path, metavar="FILE", help="add what was measured to these records"
    )
    add_board_options(parser)
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
