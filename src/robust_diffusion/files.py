"""Files that people asked for, written whole or not at all."""

import os
from pathlib import Path

from robust_diffusion.errors import ConfigError


def write_whole(path: Path, content: str | bytes, *, option: str) -> Path:
    """Write a file, or leave what was there.

    Args:
        path: The file; its folder is made if need be. A device or a pipe is written to directly.
        content: Its bytes, or its text.
        option: By which it was named.

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
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            part.write_bytes(content)
            return part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"{option} {path}: cannot be written ({reason}); name another place"
        ) from error
