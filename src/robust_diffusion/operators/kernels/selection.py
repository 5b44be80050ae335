"""Selection of the backend that computes the sums over edges, one for the whole process."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import get_args

import torch
from torch import Tensor

from robust_diffusion.checks import Backend as Backend
from robust_diffusion.checks import check_choice
from robust_diffusion.errors import ConfigError, needs_extra
from robust_diffusion.operators.kernels.base import Kernels
from robust_diffusion.operators.kernels.build import BuildError
from robust_diffusion.operators.kernels.compiled import HEADS, CompiledKernels

log = logging.getLogger(__name__)

_FLOATS = (torch.float32, torch.float64)


class _Setting:
    asked: Backend = "auto"
    effective: str | None = None  # resolved on first use


def set_backend(name: Backend) -> str:
    """Set the backend that computes the sums over edges for the rest of the process.

    All backends give the same numbers up to rounding.

    Args:
        name: `compiled` (C++, built with the user's compiler when first used), `triton` (kernels
            for CUDA devices), `torch` (PyTorch alone, operator by operator as in the equations,
            differentiable any number of times), or `auto`: compiled on a CPU where it can be built,
            triton on CUDA where it can run, and torch otherwise.

    Returns:
        The backend in effect.

    Raises:
        ConfigError: The name is unknown, `compiled` cannot be built here, or `triton` cannot run.
    """
    check_choice("backend", name, get_args(Backend))
    if name == "compiled":
        try:
            _compiled()
        except BuildError as error:
            raise ConfigError(
                f"backend=compiled: {error}; install a C++ compiler or use backend=torch"
            ) from error
    if name == "triton":
        _triton()
    if name != _Setting.asked:  # otherwise a sweep would try, and warn, in every run
        _Setting.asked, _Setting.effective = name, None
    return current_backend()


@contextmanager
def backend_set(name: Backend) -> Iterator[None]:
    """Use another backend within the context."""
    before = _Setting.asked, _Setting.effective
    set_backend(name)
    try:
        yield
    finally:
        _Setting.asked, _Setting.effective = before


def current_backend(device: str | None = None) -> str:
    """Return the backend in effect, for a type of device if one is named.

    `torch` replaces `compiled` on devices other than the CPU, and `triton` on devices other than
    CUDA; on CUDA, `auto` and `compiled` mean `triton` where it can run.
    """
    if device == "cuda" and _Setting.asked in ("auto", "compiled"):
        return "triton" if _triton_runs() else "torch"
    if _Setting.effective is None:
        _Setting.effective = _resolve(_Setting.asked)
    places = {"compiled": "cpu"}
    if _Setting.effective == "triton" and not _interpreted():
        places["triton"] = "cuda"
    elsewhere = device and device != places.get(_Setting.effective, device)
    return "torch" if elsewhere else _Setting.effective


def kernels_for(*tensors: Tensor, heads: int = 1) -> Kernels | None:
    """Return the kernels of the active backend for this device, type and number of heads.

    `None` asks for the equations as written: under `torch`, for numbers of other than 32 or 64
    bits, for mixed types or autocast, and for a number of heads that is not compiled.
    """
    dtype, device = tensors[0].dtype, tensors[0].device.type
    backend = current_backend(device)
    if dtype not in _FLOATS or any(x.dtype != dtype for x in tensors):
        return None
    if torch.is_autocast_enabled(device):
        return None
    if backend == "compiled" and heads in HEADS:
        return _compiled()
    return _triton() if backend == "triton" else None


@cache
def _compiled() -> CompiledKernels:
    return CompiledKernels()


@cache
def _triton() -> Kernels:
    if not (_interpreted() or torch.cuda.is_available()):
        raise ConfigError("backend=triton: needs a CUDA device; use backend=auto on a CPU")
    with needs_extra("triton", "backend=triton"):
        from robust_diffusion.operators.kernels.triton_kernels import TritonKernels
    return TritonKernels()


@cache
def _triton_runs() -> bool:
    """Return whether a kernel can be compiled and launched.

    Triton needs a C compiler and a recent GPU.
    """
    if _interpreted():
        return False
    try:
        with torch.inference_mode(mode=False):
            one = torch.ones(1, 1, device="cuda")
            _triton().spectral([one], [one[0]], [one[0]], iterate=False)
    except Exception as error:  # compilers and drivers raise many types
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        log.warning("backend=auto: no Triton kernels, so torch, up to rounding: %s", reason)
        return False
    return True


def _interpreted() -> bool:
    """Return whether Triton's interpreter runs the kernels, on any device."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _resolve(asked: Backend) -> str:
    if asked != "auto":
        return asked
    try:
        _compiled()
    except BuildError as error:
        log.warning("backend=auto: no compiled kernels, so torch, up to rounding: %s", error)
        return "torch"
    log.info("backend=auto: compiled kernels")
    return "compiled"
