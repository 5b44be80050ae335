"""Arithmetic that rounds alike on every machine, if the environment asks for it."""

import os

PORTABLE = {
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "avx2",
    "OPENBLAS_CORETYPE": "Haswell",
}
"""Environment that has every x86 processor with AVX2 round alike: Intel's library of matrix
products, PyTorch's own loops, and the library of GCNSVD's decomposition. Where it is set, the
compiled kernels sum in one order and round each product by itself, as no compiler can change."""


def held() -> dict[str, str]:
    """Which of these variables are set, to whatever value."""
    return {key: value for key in PORTABLE if (value := os.environ.get(key))}


def is_portable() -> bool:
    """Whether the environment asks for portable arithmetic."""
    return held() == PORTABLE
