"""Provenance of a result: package versions, git revision and machine."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robust_diffusion.records.content import code_hash
from robust_diffusion.system.portable import active_settings

if TYPE_CHECKING:
    import torch

PACKAGES = (
    *("robust-diffusion", "torch", "pytorch-lightning", "torch-geometric", "torchdiffeq"),
    *("hydra-core", "numpy"),
)


def versions() -> dict[str, str]:
    """Return the version of Python and of each package that affects results."""
    by_package = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            by_package[package] = version(package)
        except PackageNotFoundError:
            by_package[package] = "not installed"
    return by_package


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the CPU model from the kernel's list of processors, or from Python's `platform`."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, names), "") or platform.processor() or platform.machine()


def gpu_name() -> str | None:
    """Return the name of the first CUDA device; `None` without one."""
    import torch  # late, as below: most commands only read records, and PyTorch loads slowly

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def processor(device: "torch.device") -> str:
    """Return the GPU model, or the CPU model with everything that affects rounding.

    This includes the vector instructions in use, and settings of `portable.PORTABLE` that restrict
    libraries to certain instructions, such as `MKL_CBWR=COMPATIBLE`.
    """
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return cpu_name()
    vectors = torch.backends.cpu.get_cpu_capability()
    settings = [f"{key}={value}" for key, value in active_settings().items()]
    return ", ".join([cpu_name(), vectors, *settings])


def revision() -> str | None:
    """Return the git commit, with `-dirty` if files differ; `None` outside a checkout."""
    folder = Path(__file__).parent
    tracked = _git("ls-files", "--error-unmatch", Path(__file__).name, folder=folder)
    commit = _git("rev-parse", "HEAD", folder=folder)
    # An installed package may be inside a checkout of another project.
    if not tracked or not commit:
        return None
    dirty = _git("status", "--porcelain", "--untracked-files=no", folder=folder)
    return f"{commit}-dirty" if dirty else commit


def _git(*arguments: str, folder: Path) -> str | None:
    try:
        result = subprocess.run(  # git, found on PATH # nosec B603, B607
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def machine() -> dict[str, Any]:
    """Return the environment that a measured time depends on; part of the id of a timing run."""
    import torch

    from robust_diffusion.operators import current_backend

    return {
        "cpu": cpu_name(),
        "gpu": gpu_name(),
        "threads": torch.get_num_threads(),
        "backend": current_backend(),
        "torch": torch.__version__,
        "code": code_hash(),
    }
