"""Environment variables that ask for portable arithmetic, which `arithmetic` sets up."""

import os

_LIBRARIES = {
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "avx2",
    "OPENBLAS_CORETYPE": "Haswell",
}
"""Environment under which Intel's processors with AVX2 round alike, in MKL, PyTorch's own loops,
and NumPy's OpenBLAS. Where it is set, OpenBLAS computes matrix products, on one thread, and the
compiled kernels sum in one order and round each product separately, under any compiler."""

ROOTS = "ROBUST_DIFFUSION_ROOTS"

PORTABLE = {**_LIBRARIES, ROOTS: "exact"}
"""Environment under which AMD's processors round as Intel's do: in addition, MKL computes no roots
and arc tangents. MKL starts them, in any environment, from a reciprocal root that each maker's
processors approximate differently. Records without it are older."""


def active_settings() -> dict[str, str]:
    """Return the variables of `PORTABLE` that are set, to any value."""
    return {key: value for key in PORTABLE if (value := os.environ.get(key))}


def named_in(processor: str) -> dict[str, str]:
    """Return the variables of `PORTABLE` in a record's `processor`, `AMD, MKL_CBWR=COMPATIBLE`."""
    settings = dict(part.split("=", 1) for part in processor.split(", ") if "=" in part)
    return {key: value for key, value in settings.items() if key in PORTABLE}


def are_libraries_pinned() -> bool:
    """Return whether the environment pins the libraries, on all processors or only on Intel's."""
    return active_settings().items() >= _LIBRARIES.items()
