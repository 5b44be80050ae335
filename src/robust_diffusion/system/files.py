"""Files written whole or not at all, and locks among processes."""

import gzip
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from shutil import copymode

from filelock import FileLock, Timeout

from robust_diffusion.errors import ConfigError, DataError

log = logging.getLogger(__name__)


@contextmanager
def written_whole(path: Path, *, locked: bool = False) -> Iterator[Path]:
    """A temporary name to write to; what is there at the end reaches the disk and is renamed.

    After an error, or if nothing is there at the end, `path` stays as it was. Where no one else
    writes it at the same time (`locked`), one temporary name will do, and what a killed process
    left under it is written over.
    """
    if path.is_symlink():  # written through, as to a file that is opened
        path = path.resolve()
    part = path.with_name(f".{path.name}.part" if locked else f".{path.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        yield part
        if part.exists():
            with suppress(OSError):  # a private file stays private; not every system has modes
                copymode(path, part)
            _reach_disk(part)
            part.replace(path)
            with suppress(OSError):  # not every system lets a folder be opened
                _reach_disk(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes, *, option: str) -> Path:
    """Write a file that an option named, or leave what was there and raise a `ConfigError`.

    Its folder is made if need be. A device or a pipe is written to directly.
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


def check_readable(path: Path, most: float = inf) -> None:
    """Refuse a device, a pipe or a file of more bytes than `most`; a `DataError`."""
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: expected an ordinary file, got a folder, device or pipe")
    if path.exists() and path.stat().st_size > most:
        raise DataError(f"{path}: is larger than {most / 1e6:g} MB, the most that is read")


def read_limited(path: Path, most: int) -> bytes:
    """Content of an ordinary file, unpacked if it is `.gz`.

    Raises:
        DataError: It is no file, or larger than `most` bytes, packed or unpacked.
        OSError: It cannot be read.
    """
    check_readable(path, most)
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise DataError(f"{path}: unpacks to more than {most / 1e6:g} MB, the most that is read")
    return content


def file_lock(path: Path) -> FileLock:
    """Return the lock of a lock file, which is made at once.

    Raises:
        OSError: It cannot be made; `FileLock` would wait for it without end.
    """
    path.touch()
    return FileLock(path)


@contextmanager
def locked(path: Path, *, waits_for: str) -> Iterator[None]:
    """Hold a lock file, removed at the end; who has to wait for another process says for what.

    A process that dies holds no one up.
    """
    lock = file_lock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log.info("%s: another process is computing it; waiting", waits_for)
        lock.acquire()
    try:
        yield
    finally:
        # Removed while it is held: who waits for it then sees that it is gone and starts over.
        with suppress(OSError):
            path.unlink(missing_ok=True)
        lock.release()


def _reach_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
