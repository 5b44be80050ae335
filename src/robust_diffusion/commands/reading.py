"""Command-line options that choose records."""

import argparse
import gc
from collections.abc import Sequence
from pathlib import Path

from robust_diffusion.config import CONFIG_DIR, DEFAULT_RECORDS, read_yaml
from robust_diffusion.errors import DataError
from robust_diffusion.records.records import Record, check_records, read_records


def add_records_option(parser: argparse.ArgumentParser) -> None:
    """Let a command take files of records."""
    text = f"records, as often as there are files (default: {DEFAULT_RECORDS})"
    parser.add_argument("--records", action="append", metavar="FILE", help=text)


def add_scale_option(parser: argparse.ArgumentParser) -> None:
    """Let a command take the scale of the runs that count."""
    text = "which runs (default: full)"
    parser.add_argument("--scale", choices=["full", "smoke"], default="full", help=text)


def add_project_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for a W&B project."""
    project = read_yaml(CONFIG_DIR / "logger" / "wandb.yaml")["project"]
    parser.add_argument("--project", default=project, help="W&B project (default: %(default)s)")


def read_chosen(
    named: Sequence[str | Path] | None, *, required: bool = False, option: str = "--records "
) -> list[Record]:
    """The records of the files that were named, by an `option` if by any, or of the default one.

    Raises:
        DataError: A file is missing (the default one only if `required`), or holds other things.
    """
    paths = [Path(path) for path in named or [DEFAULT_RECORDS]]
    for path in paths:
        if (named or required) and not path.is_file():
            published = "experiments/results/records.jsonl.gz for the published runs"
            remedy = f"name a file that a run has written, or {published}"
            raise DataError(f"{option}{path}: not found; {remedy}")
    gc.disable()  # nothing that is read is garbage, and the collector would traverse all of it
    try:
        return check_records({path: read_records(path, missing_ok=True) for path in paths})
    finally:
        gc.freeze()
        gc.enable()
