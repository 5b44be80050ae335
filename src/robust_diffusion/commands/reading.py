"""Command-line options that choose records."""

import argparse
import gc
from collections.abc import Collection, Sequence
from pathlib import Path

from robust_diffusion.config import DEFAULT_RECORDS
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records.records import Record, check_records, read_records


def add_records_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for files of records."""
    text = f"records, as often as there are files (default: {DEFAULT_RECORDS})"
    parser.add_argument("--records", action="append", metavar="FILE", help=text)


def add_scale_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the scale of the runs to read."""
    text = "which runs (default: full)"
    parser.add_argument("--scale", choices=["full", "smoke"], default="full", help=text)


def check_options(
    parser: argparse.ArgumentParser, chosen: argparse.Namespace, read: Collection[str], command: str
) -> None:
    """Raise a `ConfigError` for an option or argument outside `read` that differs from its default.

    Args:
        parser: Parser of the command line.
        chosen: Its result.
        read: Names in `chosen` that are read.
        command: What reads nothing else, such as `certify --show`.
    """
    for name, value in vars(chosen).items():
        if name not in read and (value or None) != (parser.get_default(name) or None):
            typed = f"--{name.replace('_', '-')}"
            typed = typed if typed in parser.format_help() else value[0]
            raise ConfigError(f"{typed}: {command} does not read it; leave it out")


def read_chosen(named: Sequence[str | Path] | None, *, required: bool = False) -> list[Record]:
    """Read the records of the named files, or of the default file if none is named.

    Raises:
        DataError: A file is missing (the default one may be, unless `required`), or holds
            something other than records.
    """
    paths = [Path(path) for path in named or [DEFAULT_RECORDS]]
    for path in paths:
        if (named or required) and not path.is_file():
            published = "experiments/results/records.jsonl.gz for the published runs"
            remedy = f"name a file that a run has written, or {published}"
            raise DataError(f"--records {path}: not found; {remedy}")
    gc.disable()  # the collector would traverse every record, although none is garbage
    try:
        return check_records({path: read_records(path, missing_ok=True) for path in paths})
    finally:
        gc.freeze()
        gc.enable()
