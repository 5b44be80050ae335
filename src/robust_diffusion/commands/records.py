"""The option `--records` of every command that shows what has been recorded."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from robust_diffusion.errors import DataError
from robust_diffusion.evaluation.records import Record, read_records

DEFAULT_RECORDS = "outputs/records.jsonl"


def add_records_option(parser: argparse.ArgumentParser) -> None:
    """Let a command take files of records.

    Args:
        parser: Of the command.
    """
    parser.add_argument(
        "--records",
        action="append",
        metavar="FILE",
        help=f"records, as often as there are files (default: {DEFAULT_RECORDS})",
    )


def read_chosen(named: Sequence[str] | None, *, required: bool = False) -> list[Record]:
    """The records of the files that were named, or of the default one.

    Args:
        named: What the option holds.
        required: The default file has to be there, too.

    Raises:
        DataError: A file is not there.
    """
    paths = [Path(path) for path in named or [DEFAULT_RECORDS]]
    for path in paths:
        if (named or required) and not path.is_file():
            raise DataError(f"--records {path}: not found; name a file that a run has written")
    return [record for path in paths for record in read_records(path)]
