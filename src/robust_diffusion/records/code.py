"""A hash of the package's own code, as far as it changes what is computed."""

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from robust_diffusion.system.hashes import source_hash
from robust_diffusion.system.portable import active_settings

SOURCE = Path(__file__).parents[1]

LANGUAGES = (".py", ".cpp", ".h")

HASHED_PATHS = (
    *("attacks", "data", "flows", "integrators", "models", "operators", "system/arithmetic.py"),
    "training",
)
"""Code of the package that a trained model or a perturbed graph depends on."""


@cache
def code_hash() -> str:
    """Short hash of the code behind trained models and perturbed graphs.

    Comments, docstrings, layout and the files' places do not count. Other arithmetic is other code:
    what it computed is not taken for this one's.
    """
    settings = (f"{key}={value}" for key, value in active_settings().items())
    files = (file for part in HASHED_PATHS for file in _files(SOURCE / part))
    sources = sorted(source_hash(file) for file in files if file.suffix in LANGUAGES)
    return hashlib.sha256("\0".join([*settings, *sources]).encode()).hexdigest()[:16]


def computed_by() -> dict[str, Any]:
    """The part of a store's key that is the same for all entries of one process.

    The backend counts, since backends agree up to rounding, which a training makes larger.
    The threads of the CPU count unless there is one: a sum by several of them rounds otherwise.
    """
    import torch  # late: code_hash is asked for where nothing is computed

    from robust_diffusion.operators import current_backend

    threads = torch.get_num_threads()
    key = {"code": code_hash(), "backend": current_backend()}
    return key | ({} if threads == 1 else {"threads": threads})


def _files(path: Path) -> Iterator[Path]:
    yield from path.rglob("*") if path.is_dir() else [path]
