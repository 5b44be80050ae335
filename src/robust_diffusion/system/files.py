"""Files that are written completely or not at all, and locks between processes."""

import gzip
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from shutil import copymode
from tempfile import TemporaryFile

from filelock import FileLock, Timeout

from robust_diffusion.errors import ConfigError, DataError

log = logging.getLogger(__name__)

MOST_UNPACKED = 2 * 2**30
MOST_RATIO = 500
"""Bytes, and times its size on the disk, beyond both of which a file is refused: zeros reach 1,000
times, and dense features of words some 200."""


@contextmanager
def written_whole(path: Path, *, locked: bool = False) -> Iterator[Path]:
    """Yield a temporary name to write to; a file written there is synced and renamed to `path`.

    After an error, or if no file was written, `path` stays as it was. If no other process writes it
    at the same time (`locked`), one temporary name suffices, and the remains of a killed process
    are overwritten.
    """
    if path.is_symlink():  # write through the link, as `open` does
        path = path.resolve()
    part = path.with_name(f".{path.name}.part" if locked else f".{path.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        yield part
        if part.exists():
            _reach_disk(part)
            with suppress(OSError):  # a private file stays private; not every system has modes
                copymode(path, part)
            part.replace(path)
            with suppress(OSError):  # not every system lets a folder be opened
                _reach_disk(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes, *, option: str) -> Path:
    """Write a file that an option names, or leave it as it was and raise a `ConfigError`.

    Create its folder if it is missing. Write to a device or a pipe directly.
    """
    content = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not (path.is_file() or path.is_dir()):
            path.write_bytes(content)
            return path
        with written_whole(path) as part:
            part.write_bytes(content)
    except (OSError, ValueError) as error:  # a ValueError: the path ends with no name
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"{option} {path}: cannot be written ({reason}); name another place"
        ) from error
    return path


def check_folder(folder: str | Path, *, option: str) -> None:
    """Create the folder that an option names, or raise a `ConfigError`, before any long work."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"{option} {folder}: cannot be written ({error.strerror}); name another folder"
        ) from error


def check_readable(path: Path, most: float = inf) -> None:
    """Raise a `DataError` for a folder, a device, a pipe or a file of more bytes than `most`.

    A file with large holes is refused, too: it takes no space on the disk, but would in memory.
    """
    if not path.exists():
        return
    if not path.is_file():
        raise DataError(f"{path}: expected an ordinary file, got a folder, device or pipe")
    size, on_disk = path.stat().st_size, 512 * getattr(path.stat(), "st_blocks", 0)
    if size > most:
        raise DataError(f"{path}: is larger than {most / 1e6:g} MB, the most that is read")
    if on_disk and size > max(MOST_UNPACKED, MOST_RATIO * on_disk):  # 0 if unknown
        raise DataError(
            f"{path}: has {size / 2**30:.1f} GiB, of which the disk holds {on_disk / 1e6:g} MB; "
            "fetch the file again"
        )


def read_limited(path: Path, most: int) -> bytes:
    """Return the content of an ordinary file, unpacked if it is `.gz`.

    Raises:
        DataError: It is not a file, or larger than `most` bytes, packed or unpacked.
        OSError: It cannot be read.
    """
    check_readable(path, most)
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise DataError(f"{path}: unpacks to more than {most / 1e6:g} MB, the most that is read")
    return content


@contextmanager
def locked(path: Path, *, waits_for: str = "") -> Iterator[None]:
    """Hold a lock file, and remove it at the end; log `waits_for` if another process holds it.

    The lock of a process that dies is released.

    Raises:
        OSError: It cannot be created; `FileLock` would wait for it forever.
    """
    path.touch()
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if waits_for:
            log.info("%s: another process is computing it; waiting", waits_for)
        lock.acquire()
    try:
        yield
    finally:
        # Removed while it is held: a waiting process then sees that it is gone and starts over.
        with suppress(OSError):
            path.unlink(missing_ok=True)
        lock.release()


def _reach_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
