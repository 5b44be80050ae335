"""`robust-diffusion records repair`: maintenance of files of records."""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from robust_diffusion.commands.reading import add_records_option
from robust_diffusion.config import DEFAULT_RECORDS
from robust_diffusion.errors import DataError
from robust_diffusion.records.records import (
    REPAIR,
    RecordLine,
    check_writable,
    locked_records,
    problem_of,
    record_lines,
)
from robust_diffusion.system.files import written_whole


def run_records_command(arguments: Sequence[str]) -> None:
    """Repair files of records.

    Raises:
        DataError: A file does not exist, or has no record to repair.
        ConfigError: A file cannot be written, or is compressed.
    """
    parser = argparse.ArgumentParser(
        prog="robust-diffusion records", description="Repair files of records."
    )
    parser.add_argument(
        "command",
        choices=["repair"],
        help="repair: move damaged lines to FILE.unreadable",
    )
    add_records_option(parser)
    chosen = parser.parse_args(arguments)
    for name in chosen.records or [DEFAULT_RECORDS]:
        path = Path(name)
        if not path.is_file():
            raise DataError(f"--records {path}: not found; name a file that a run has written")
        sys.stdout.write(f"{path}: {repair(path)}\n")


def repair(path: Path) -> str:
    """Move the damaged lines of a file to the end of `<file>.unreadable`, and report how many.

    Raises:
        DataError: All lines are damaged, as in a file of another format.
    """
    check_writable(path, "--records ")
    with locked_records(path):
        lines = list(record_lines(path))
        damaged, rest = list[bytes](), list[RecordLine]()
        for line in lines:
            if line.remedy == REPAIR or (line.record and problem_of(line.record)):
                damaged.append(line.content)
            else:
                rest.append(line)
        if lines and all(line.remedy == REPAIR for line in lines):
            raise DataError(f"--records {path}: no line is a record; name a file of records")
        count = sum(line.record is not None for line in rest)
        if not damaged:
            return f"{count} records; nothing to repair"
        beside = Path(f"{path}.unreadable")
        # Copied before they are removed, so that a kill in between duplicates but never loses them.
        _append(beside, damaged)
        _replace(path, (line.content for line in rest))
    return f"{count} records; {len(damaged)} moved to {beside}"


def _append(path: Path, lines: Iterable[bytes]) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(b"".join(line + b"\n" for line in lines))
        os.fsync(file.fileno())


def _replace(path: Path, lines: Iterable[bytes]) -> None:
    with written_whole(path, locked=True) as part:
        part.write_bytes(b"".join(line + b"\n" for line in lines))
