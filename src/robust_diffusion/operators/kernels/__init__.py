"""Backends: the same sums over edges, forward and backward, in C++ and in PyTorch."""

from robust_diffusion.operators.kernels.base import (
    MAX_EXPONENT,
    Attended,
    Diffused,
    Modulation,
)
from robust_diffusion.operators.kernels.pure import Kernels
from robust_diffusion.operators.kernels.selection import (
    Backend,
    backend_set,
    current_backend,
    kernels_for,
    set_backend,
)

__all__ = [
    "MAX_EXPONENT",
    "Attended",
    "Backend",
    "Diffused",
    "Kernels",
    "Modulation",
    "backend_set",
    "current_backend",
    "kernels_for",
    "set_backend",
]
