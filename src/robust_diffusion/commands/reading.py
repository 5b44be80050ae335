"""Command-line options that choose records."""

import argparse
import gc
from collections.abc import Collection, Sequence
from pathlib import Path

from robust_diffusion.config import DEFAULT_RECORDS
from robust_diffusion.errors import ConfigError
from robust_diffusion.records.record import Record
from robust_diffusion.records.records import read_records


def add_records_option(parser: argparse.ArgumentParser, default: str = DEFAULT_RECORDS) -> None:
    """Add the option for folders and archives of records."""
    text = f"folder or archive of records; may be repeated (default: {default})"
    parser.add_argument("--records", action="append", metavar="PATH", help=text)


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


def read_chosen(places: Sequence[str | Path] | None, *, required: bool = False) -> list[Record]:
    """Read the records of the named places, or of the default folder if none is named.

    Raises:
        DataError: A place is missing (the default one may be, unless `required`), or is no archive.
    """
    gc.disable()  # the collector would traverse every record, although none is garbage
    try:
        missing_ok = not (places or required)
        return read_records(*(places or [DEFAULT_RECORDS]), missing_ok=missing_ok)
    finally:
        gc.freeze()
        gc.enable()
