"""Threads of a process, and portable arithmetic: the same rounding on every x86 processor."""

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor
from torch.library import Library

from robust_diffusion.checks import Count, check_value
from robust_diffusion.errors import ConfigError, RobustDiffusionError
from robust_diffusion.system.cores import usable_cores
from robust_diffusion.system.portable import ROOTS, active_settings, are_libraries_pinned

LONG_EPOCH = 0.2
"""Seconds of an epoch on one thread from which on `auto` takes all cores; in shorter epochs,
threads wait for each other more than they compute."""

SECONDS_PER_EDGE = 6e-9
"""Time of an epoch per directed edge, layer and channel: Beltrami on Amazon Computer, one step."""

log = logging.getLogger(__name__)


def set_threads(
    threads: int | str, num_edges: int = 0, widths: int | Sequence[int] = 64, num_layers: int = 3
) -> int:
    """Set the threads of this process, and return their number.

    The kernels' results do not depend on it; products of matrices may round differently.

    Args:
        threads: A number of at least 1, or `auto`: 1 on a small graph, and all cores where an epoch
            on one would take `LONG_EPOCH`. The time is estimated from the graph's size, not
            measured, so that a run always takes the same number.
        num_edges: Directed edges of the graph; 0 before it is known.
        widths: Widths of the hidden layers.
        num_layers: Number of layers.

    Raises:
        ConfigError: Neither `auto` nor such a number.
    """
    if threads != "auto":
        if isinstance(threads, str):
            raise ConfigError(f"threads={threads}: must be auto or a whole number of at least 1")
        torch.set_num_threads(check_value("threads", threads, Count))
        return torch.get_num_threads()
    width = widths if isinstance(widths, int) else max(widths, default=64)
    seconds = SECONDS_PER_EDGE * num_edges * num_layers * width
    count = usable_cores() if seconds >= LONG_EPOCH else 1
    torch.set_num_threads(count)
    if num_edges:
        log.info(
            "threads=auto: %d, for an epoch of about %.0f ms on one thread", count, 1e3 * seconds
        )
    return count


Replacement = Callable[..., Tensor]


def set_up_arithmetic() -> None:
    """Replace what PyTorch leaves to MKL if the environment asks for portable arithmetic.

    It holds for the rest of the process; calling it again changes nothing.

    Raises:
        RobustDiffusionError: NumPy's products are not those of OpenBLAS for this environment, or
            the variable for roots is set to something else.
    """
    settings = active_settings()
    if settings.get(ROOTS, "exact") != "exact":
        raise RobustDiffusionError(f"{ROOTS}={settings[ROOTS]}: set it to exact, or unset it")
    if are_libraries_pinned():
        _require_openblas()
        _replace(*PRODUCTS.items())
    if ROOTS in settings:
        _replace(*ROOTS_AND_TANGENTS.items())


def _require_openblas() -> None:
    blas = ThreadpoolController().select(user_api="blas")
    names = [f"{lib['internal_api']} for {lib.get('architecture', 'all')}" for lib in blas.info()]
    if "openblas for Haswell" not in names:
        raise RobustDiffusionError(
            f"portable arithmetic: NumPy multiplies matrices by {', '.join(names) or 'no library'}"
            ", not by openblas for Haswell; install NumPy from PyPI, on an x86 processor with AVX2"
        )
    blas.limit(limits=1)  # more threads may sum in another order


@cache
def _replace(*operators: tuple[str, Replacement]) -> Library:
    """Register replacements; the cached library keeps them registered while the process lives."""
    replaced = Library("aten", "IMPL")
    with warnings.catch_warnings():  # replacing PyTorch's operators is deliberate
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        for name, replacement in operators:
            replaced.impl(name, replacement, "CPU")
    return replaced


def _mm(left: Tensor, right: Tensor) -> Tensor:
    product = left.new_empty(left.shape[0], right.shape[-1])
    if not _are_multiplied(left, right):
        return torch.mm(left, right, out=product)  # PyTorch's own, with its errors
    np.matmul(left.detach().numpy(), right.detach().numpy(), out=product.numpy())
    return product


def _addmm(
    bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    if beta == alpha == 1 and _are_multiplied(left, right):
        return _mm(left, right).add_(bias)
    out = left.new_empty(left.shape[0], right.shape[-1])
    return torch.addmm(bias, left, right, beta=beta, alpha=alpha, out=out)


def _are_multiplied(left: Tensor, right: Tensor) -> bool:
    return (
        left.dtype == right.dtype
        and _is_real(left)
        and left.ndim == right.ndim == 2
        and left.shape[1] == right.shape[0]
    )


def _sqrt(x: Tensor) -> Tensor:
    if not _is_real(x):
        return torch.sqrt(x, out=_result(x))
    root = torch.empty_like(x)
    with np.errstate(invalid="ignore"):  # NaN for a negative number, as in PyTorch
        np.sqrt(x.detach().numpy(), out=root.numpy())
    return root


def _atan(x: Tensor) -> Tensor:
    if not _is_real(x):
        return torch.atan(x, out=_result(x))
    dense = x.contiguous()  # PyTorch passes strided tensors to the C library
    return torch.atan2(dense, torch.ones_like(dense))  # PyTorch's own loop, not MKL's


def _pow(x: Tensor, exponent: float) -> Tensor:
    if exponent == 0.5 and _is_real(x):  # PyTorch would call its own root, not the replacement
        return _sqrt(x)
    return torch.pow(x, exponent, out=x.new_empty(0, dtype=torch.result_type(x, exponent)))


def _is_real(x: Tensor) -> bool:
    return x.dtype in (torch.float32, torch.float64)


def _result(x: Tensor) -> Tensor:
    whole = not (x.is_floating_point() or x.is_complex())
    return x.new_empty(0, dtype=torch.get_default_dtype() if whole else x.dtype)


def _in_place(replacement: Replacement, original: Replacement) -> Replacement:
    def run(x: Tensor, *args: float) -> Tensor:
        return x.copy_(replacement(x, *args)) if _is_real(x) else original(x, *args, out=x)

    return run


# By the operator's name. PyTorch computes gradients itself, and calls these for its own operators.
PRODUCTS: dict[str, Replacement] = {"mm": _mm, "addmm": _addmm}
ROOTS_AND_TANGENTS: dict[str, Replacement] = {
    "sqrt": _sqrt,
    "sqrt_": _in_place(_sqrt, torch.sqrt),
    "pow.Tensor_Scalar": _pow,
    "pow_.Scalar": _in_place(_pow, torch.pow),
    "atan": _atan,
    "atan_": _in_place(_atan, torch.atan),
}
