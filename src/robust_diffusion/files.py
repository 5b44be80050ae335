"""Files written whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from robust_diffusion.errors import ConfigError


@contextmanager
def written_whole(path: Path, *, locked: bool = False) -> Iterator[Path]:
    """A temporary name to write to; what is there at the end reaches the disk and is renamed.

    After an error, or if nothing is there at the end, `path` stays as it was.

    Args:
        path: The file, in a folder that exists.
        locked: Nobody else writes it at the same time, so that one temporary name will do and
            what a killed process left under it is written over.

    Raises:
        OSError: It cannot be written.
    """
    part = path.with_name(f".{path.name}.part" if locked else f".{path.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        yield part
        if part.exists():
            _reach_disk(part)
            part.replace(path)
            with suppress(OSError):  # not every system lets a folder be opened
                _reach_disk(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes, *, option: str) -> Path:
    """Write a file that the user asked for, or leave what was there.

    Args:
        path: The file; its folder is made if need be. A device or a pipe is written to directly.
        content: Its bytes, or its text.
        option: The option that named it.

    Returns:
        The path.

    Raises:
        ConfigError: It cannot be written.
    """
    content = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not (path.is_file() or path.is_dir()):
            path.write_bytes(content)
            return path
        with written_whole(path) as part:
            part.write_bytes(content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"{option} {path}: cannot be written ({reason}); name another place"
        ) from error
    return path


def _reach_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
