"""Build of the C++ kernels by the user's compiler; the library is cached per machine."""

import ctypes
import hashlib
import logging
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from filelock import FileLock

from robust_diffusion.errors import RobustDiffusionError
from robust_diffusion.system.files import written_whole
from robust_diffusion.system.portable import are_libraries_pinned

SOURCES = Path(__file__).with_name("native")

FLAGS = ("-std=c++17", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared")
# These leave NaN and infinity intact, unlike -ffast-math.
ARITHMETIC = ("-fno-math-errno", "-fno-trapping-math")

_TIMEOUT = 300
"""Seconds after which the compiler is stopped."""

log = logging.getLogger(__name__)


class BuildError(RobustDiffusionError):
    """The kernels could not be built; the message is one line that says why."""


@cache
def load_library(real: str) -> ctypes.CDLL:
    """Load the kernels for `float` or `double`, building them if this machine has not yet.

    Raises:
        BuildError: There is no compiler, or it failed.
    """
    compiler = _compiler()
    path = cache_folder() / f"kernels-{real}-{_identity(compiler)}.so"
    try:
        if not path.is_file():  # before the lock: the folder may be read-only
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{path}.lock"):
                if not path.is_file():
                    _compile(compiler, real, path)
        return ctypes.CDLL(str(path))
    except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
        raise BuildError(f"{path}: {error}") from error


def cache_folder() -> Path:
    """Return the folder of built kernels: `ROBUST_DIFFUSION_CACHE`, or the user's cache folder."""
    import pooch  # late, since few processes need it

    return Path(os.environ.get("ROBUST_DIFFUSION_CACHE") or pooch.os_cache("robust_diffusion"))


def _compiler() -> tuple[str, ...]:
    """Return the compiler's command, including options from CXX."""
    if named := shlex.split(os.environ.get("CXX", "")):
        if shutil.which(named[0]) is None:
            raise BuildError(f"CXX={shlex.join(named)}: no such compiler; name another or unset it")
        return tuple(named)
    for name in ("c++", "g++", "clang++"):
        if path := shutil.which(name):
            return (path,)
    raise BuildError("no C++ compiler found (c++, g++, clang++, or one named by CXX)")


def _identity(compiler: Sequence[str]) -> str:
    """Return a hash of the library's inputs: source, flags, compiler and instruction set."""
    # The predefined macros identify the compiler's version and the processor's instruction set, so
    # that machines sharing a cache never load a library built for another processor.
    macros = _run(*compiler, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull)
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    digest.update("\0".join((*compiler[1:], *FLAGS, *_arithmetic(), macros)).encode())
    return digest.hexdigest()[:16]


def _compile(compiler: Sequence[str], real: str, path: Path) -> None:
    start = time.perf_counter()
    source = str(SOURCES / "kernels.cpp")
    with written_whole(path, locked=True) as part:  # so that no process loads half a library
        _run(*compiler, *FLAGS, *_arithmetic(), f"-DREAL={real}", source, "-o", str(part))
    log.info("kernels for %s built in %.1f s: %s", real, time.perf_counter() - start, path)


def _arithmetic() -> tuple[str, ...]:
    # Otherwise the compiler contracts sums with products depending on the processor.
    contract, alike = ("off", 1) if are_libraries_pinned() else ("fast", 0)
    return (*ARITHMETIC, f"-ffp-contract={contract}", f"-DROUND_ALIKE={alike}")


def _run(*command: str) -> str:
    try:
        result = subprocess.run(  # the user's compiler # nosec B603
            command, capture_output=True, text=True, check=True, timeout=_TIMEOUT
        )
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if "error" in line] or ["failed"]
        raise BuildError(f"{command[0]}: {lines[0]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]}: {error}") from error
    return result.stdout
