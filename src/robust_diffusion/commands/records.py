"""`robust-diffusion records repair`: lines that cannot be read leave a file of records."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from robust_diffusion.commands.reading import DEFAULT_RECORDS, add_records_option
from robust_diffusion.errors import DataError
from robust_diffusion.records.records import check_writable, locked_records, record_lines
from robust_diffusion.system.files import written_whole


def run_records_command(arguments: Sequence[str]) -> None:
    """Move the lines that cannot be read to a file beside, `<records>.unreadable`, and count them.

    Raises:
        DataError: There is no such file.
        ConfigError: It cannot be written, or is compressed.
    """
    parser = argparse.ArgumentParser(
        prog="robust-diffusion records", description="Look after files of records."
    )
    parser.add_argument(
        "command",
        choices=["repair"],
        help="repair: move the lines that cannot be read to a file beside",
    )
    add_records_option(parser)
    for name in parser.parse_args(arguments).records or [DEFAULT_RECORDS]:
        path, beside = Path(name), Path(f"{name}.unreadable")
        moved, kept = repair(path, beside)
        said = f"{moved} moved to {beside}" if moved else "nothing to repair"
        sys.stdout.write(f"{path}: {kept} records; {said}\n")


def repair(path: Path, beside: Path) -> tuple[int, int]:
    """Numbers of lines that were moved from one file to the end of the other, and that stayed."""
    if not path.is_file():
        raise DataError(f"--records {path}: not found; name a file that a run has written")
    check_writable(path)
    with locked_records(path):
        lines = list(record_lines(path))
        kept = [line for _, line, record in lines if record is not None]
        moved = [line for _, line, record in lines if record is None]
        if moved:
            # First there, then not here: whoever is killed in between leaves them twice, not never.
            with beside.open("ab", buffering=0) as file:
                file.write(b"".join(line + b"\n" for line in moved))
                os.fsync(file.fileno())
            with written_whole(path, locked=True) as part:
                part.write_bytes(b"".join(line + b"\n" for line in kept))
    return len(moved), len(kept)
