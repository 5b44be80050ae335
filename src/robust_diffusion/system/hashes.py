"""Canonical JSON of a configuration, and hashes of files.

It needs only the standard library, and gives the same hashes under every Python version.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robust_diffusion.errors import ConfigError


def canonical_json(value: Any, where: str) -> str:
    """Return the canonical JSON text of a value: sorted keys, no spaces, ASCII, floats by `repr`.

    Raises:
        ConfigError: A value that JSON cannot hold, or that is not finite, named by its place in
            `where`.
    """
    return json.dumps(_plain(value, where), sort_keys=True, separators=(",", ":"))


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}={value}: is not finite, so it identifies nothing; use a number")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise ConfigError(f"{where}: has the key {name!r}; use strings")
        return {name: _plain(item, f"{where}.{name}") for name, item in value.items()}
    raise ConfigError(
        f"{where}: a {type(value).__name__} cannot be kept as JSON; use numbers, strings, lists "
        "and dictionaries"
    )


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
