"""A hash of the package's own code, as far as it changes what is computed."""

import hashlib
from functools import cache
from pathlib import Path

from robust_diffusion.arithmetic import active_settings
from robust_diffusion.hashes import source_hash

SOURCE = Path(__file__).parents[1]

LANGUAGES = (".py", ".cpp", ".h")

HASHED_PATHS = (
    "arithmetic.py",
    "attacks",
    "data",
    "flows",
    "integrators",
    "models",
    "operators",
    "solver.py",
    "training",
)
"""Code of the package that a trained model or a perturbed graph depends on."""


@cache
def code_hash() -> str:
    """Short hash of the code behind trained models and perturbed graphs.

    Comments, docstrings and layout do not count. Other arithmetic is other code: what it computed
    is not taken for this one's.
    """
    settings = (f"{key}={value}" for key, value in active_settings().items())
    digest = hashlib.sha256("\0".join(settings).encode())
    for part in HASHED_PATHS:
        path = SOURCE / part
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in (file for file in found if file.suffix in LANGUAGES):
            name = file.relative_to(SOURCE).as_posix()
            digest.update(f"\0{name}\0{source_hash(file)}".encode())
    return digest.hexdigest()[:16]
