"""Where a result came from: versions and git revision."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "robust-diffusion",
    "torch",
    "pytorch-lightning",
    "torch-geometric",
    "torchdiffeq",
    "hydra-core",
    "numpy",
)


def versions() -> dict[str, str]:
    """Version of Python and of each package that shapes a result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def revision() -> str | None:
    """Git commit of this source tree, with `-dirty` if files differ; `None` outside a checkout."""
    folder = Path(__file__).parent
    tracked = _git("ls-files", "--error-unmatch", Path(__file__).name, folder=folder)
    commit = _git("rev-parse", "HEAD", folder=folder)
    # An installed package may lie inside a checkout of something else.
    if not tracked or not commit:
        return None
    dirty = _git("status", "--porcelain", "--untracked-files=no", folder=folder)
    return f"{commit}-dirty" if dirty else commit


def _git(*arguments: str, folder: Path) -> str | None:
    try:
        result = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
