"""`robust-diffusion leaderboard`: models by worst case, as a page and as JSON."""

import argparse
import inspect
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from robust_diffusion.commands.records import add_records_option, read_chosen
from robust_diffusion.config import PUBLISHED
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError, DataError, RobustDiffusionError
from robust_diffusion.evaluation.zoo import Zoo, load_weights
from robust_diffusion.files import write_whole
from robust_diffusion.results.leaderboard import (
    Checked,
    ReportCheck,
    Unchecked,
    boards,
    published,
    render_json,
    render_page,
)

RECORDS = PUBLISHED / "results" / "records.jsonl.gz"
"""The published records, in a checkout."""


def run_leaderboard_command(arguments: Sequence[str]) -> None:
    """Write the leaderboard; exits with 1 if a report was refused.

    Raises:
        DataError: Records that are missing or damaged, a damaged zoo, or weights of another model.
        ConfigError: A model that cannot be built, or a folder that cannot be written.
    """
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if (chosen.model is None) != (chosen.weights is None):
        parser.error("--model and --weights: name both, or neither")
    records = chosen.records or ([RECORDS] if RECORDS.is_file() else None)
    counted = published(read_chosen(records, required=True))
    own = chosen.model and partial(_own_model, chosen.model, chosen.weights)
    check = ReportCheck(counted, _zoo(chosen.zoo), own)
    reports: list[Checked | Unchecked] = []
    refused = False
    for folder in chosen.report:
        try:
            reports.append(check(folder))
        except RobustDiffusionError as error:
            refused = True
            sys.stderr.write(f"refused: {folder}: {' '.join(str(error).split())}\n")
    made = boards(counted, reports)
    texts = {"leaderboard.html": render_page(made), "leaderboard.json": render_json(made)}
    for name, text in texts.items():
        sys.stdout.write(f"{write_whole(chosen.out / name, text, option='--out')}\n")
    states = Counter(row.state for board in made for row in board.rows)
    counts = ", ".join(f"{count} {state}" for state, count in states.items()) or "no row"
    sys.stdout.write(f"{len(made)} {'board' if len(made) == 1 else 'boards'}: {counts}\n")
    if refused:
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-diffusion leaderboard",
        description="Rank models by their worst case, from the published records and from reports "
        "of your own. A report is checked by the graphs that it carries: what they spend is "
        "counted, and the model is run on them. Nothing in a report is run.",
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
        "in_channels and out_channels if it takes these",
    )
    parser.add_argument(
        "--weights", type=Path, metavar="FILE", help="its state_dict(), as safetensors"
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


def _zoo(named: Path | None) -> Zoo | None:
    """The zoo that was named, or the default one, if there is one."""
    try:
        return Zoo.open(named)
    except DataError as error:
        if named is None and isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def _own_model(name: str, weights: Path, datamodule: GraphDataModule) -> nn.Module:
    """The user's model with its weights, in eval mode."""
    module, _, attribute = name.rpartition(".")
    try:
        build = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"--model {name}: cannot be imported ({error}); name a class of a module on the Python "
            "path, such as my_models.Mine"
        ) from error
    sizes = {"in_channels": datamodule.num_features, "out_channels": datamodule.num_classes}
    try:
        taken = inspect.signature(build).parameters
        model = build(**{key: size for key, size in sizes.items() if key in taken})
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"--model {name}: cannot be called ({error}); name a function that builds the model of "
            "in_channels and out_channels alone"
        ) from error
    if not isinstance(model, nn.Module):
        raise ConfigError(f"--model {name}: builds a {type(model).__name__}, not an nn.Module")
    try:
        tensors = load_file(weights)
    except (OSError, SafetensorError) as error:
        raise DataError(f"--weights {weights}: cannot be read as safetensors ({error})") from error
    load_weights(model, tensors, where=weights)
    return model.eval()
