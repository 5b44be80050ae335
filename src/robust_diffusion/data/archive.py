"""Checks of data files that read no tensor."""

import zipfile
from pathlib import Path

from robust_diffusion.errors import DataError


def check_archive(path: Path) -> None:
    """Compare every byte with the checksums, which numpy and torch may skip."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"{member.filename} is compressed in an unknown way")
        if (broken := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"{broken} does not match its checksum")


def require(path: Path) -> None:
    """Raise a DataError if there is no such file."""
    if not path.is_file():
        raise DataError(f"{path}: not found; check the path")
