"""What a cell is: a hash of everything in its configuration that shapes its result."""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from robust_diffusion.hashes import canonical_json

SHOWN = frozenset(
    [
        "backend",
        "download",
        "experiment",
        "force",
        "logger",
        "paths",
        "scale",
        "table",
        "threads",
    ]
)
"""Parts of a configuration that shape what is shown, where or how fast, not what results."""

LATER: Mapping[str, tuple[Any, ...]] = {
    "callbacks": ({}, None),
    "timing": ({}, None),
    "model.variant": ("original",),
    "model.negative_degree": ("zero",),
    "surrogates.gcn_svd.negative_degree": ("zero",),
    "surrogates.appnp.variant": ("original",),
    "surrogates.graph_sage.variant": ("original",),
    "threat.surrogates.gcn_svd.negative_degree": ("zero",),
    "threat.surrogates.appnp.variant": ("original",),
    "threat.surrogates.graph_sage.variant": ("original",),
    "fidelity.appnp": ("original", "grb"),  # what reads these holds them, too
    "fidelity.graph_sage": ("original", "grb"),
    "fidelity.pgd_steps": (100, 5),
    "fidelity.edge_values": ("ones",),
    "data.edge_values": ("ones",),
}
"""Keys that cells of before lack: with these values, a cell is the one that it was then."""

PASSING = re.compile(
    r"(.*\.)?_partial_|dataset\.(edge_values|printed)|(training|threat\.fit)\.progress_bar"
    r"|threat\.fit\.key|data(set)?\.source\.(.*\.)?(download|root|urls)"
)
"""Paths of keys that do not shape a result either; a flow's own `key` or `root` does."""


def shaping(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration that shapes a cell's result."""
    return {
        key: _shaping(value, key)
        for key, value in config.items()
        if key not in SHOWN and value not in LATER.get(key, ())
    }


def cell_id(config: Mapping[str, Any]) -> str:
    """Short hash of a cell's configuration; two cells of one id have one result.

    The user's own data files count by their content, since where they lie says nothing.

    Args:
        config: The resolved configuration.
    """
    shaped_by = shaping(config)
    path = config.get("dataset", {}).get("source", {}).get("path")
    files = {} if path is None else _content(Path(str(path)))  # a folder may be named 2024
    if files:
        for part in ("dataset", "data"):
            shaped_by.get(part, {}).get("source", {}).pop("path", None)
    text = canonical_json(shaped_by | {"files": files}, "config")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _content(path: Path) -> dict[str, str]:
    """Hashes of the files of a folder by their names, or of one file by its suffix."""
    if path.is_file():
        return {path.suffix: _hash(path)}
    return {f.name: _hash(f) for f in sorted(path.glob("*")) if f.is_file()}


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@cache  # thousands of records have the same few hundred paths
def _passing(path: str) -> bool:
    return PASSING.fullmatch(path) is not None


def _shaping(value: Any, path: str = "") -> Any:
    if isinstance(value, Mapping):
        return {
            key: _shaping(child, at)
            for key, child in value.items()
            if not _passing(at := f"{path}.{key}" if path else str(key))
            and child not in LATER.get(at, ())
        }
    if isinstance(value, list):
        return [_shaping(child, path) for child in value]
    # 1 and 1.0 are one value to whatever reads it.
    return int(value) if isinstance(value, float) and value.is_integer() else value
