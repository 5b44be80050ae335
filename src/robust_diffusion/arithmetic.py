"""Arithmetic that rounds alike on every machine, if the environment asks for it."""

import os
import warnings
from functools import cache

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor
from torch.library import Library

from robust_diffusion.errors import RobustDiffusionError

PORTABLE = {
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "avx2",
    "OPENBLAS_CORETYPE": "Haswell",
}
"""Environment by which x86 processors with AVX2 round alike: Intel's MKL, PyTorch's own loops, and
NumPy's OpenBLAS. Where it is set, OpenBLAS takes matrix products, on one thread, and the compiled
kernels sum in one order and round each product by itself, as no compiler can change."""


def held() -> dict[str, str]:
    """Which of these variables are set, to whatever value."""
    return {key: value for key in PORTABLE if (value := os.environ.get(key))}


def is_portable() -> bool:
    """Whether the environment asks for portable arithmetic."""
    return held() == PORTABLE


def set_up_arithmetic() -> None:
    """Have OpenBLAS take PyTorch's matrix products if the environment asks for portable arithmetic.

    MKL's own that round alike everywhere take four times as long. To call this again changes
    nothing; from then on it holds for the whole process.

    Raises:
        RobustDiffusionError: NumPy's products are not those of OpenBLAS for this environment.
    """
    if is_portable():
        _take_products()


@cache
def _take_products() -> Library:
    """Registered for as long as it is kept, which is as long as the process lives."""
    blas = ThreadpoolController().select(user_api="blas")
    found = [f"{of['internal_api']} for {of.get('architecture', 'all')}" for of in blas.info()]
    if "openblas for Haswell" not in found:
        raise RobustDiffusionError(
            f"portable arithmetic: NumPy multiplies matrices by {', '.join(found) or 'no library'}"
            ", not by openblas for Haswell; install NumPy from PyPI, on an x86 processor with AVX2"
        )
    blas.limit(limits=1)  # more threads may sum in another order
    products = Library("aten", "IMPL")
    with warnings.catch_warnings():  # that PyTorch's own are replaced is what is wanted
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        products.impl("mm", _mm, "CPU")
        products.impl("addmm", _addmm, "CPU")
    return products


def _mm(left: Tensor, right: Tensor) -> Tensor:
    product = left.new_empty(left.shape[0], right.shape[-1])
    if not _are_multiplied(left, right):
        return torch.mm(left, right, out=product)  # PyTorch's own, with its errors
    # Gradients are PyTorch's business: it calls this for each product of theirs as well.
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
        and left.dtype in (torch.float32, torch.float64)
        and left.ndim == right.ndim == 2
        and left.shape[1] == right.shape[0]
    )
