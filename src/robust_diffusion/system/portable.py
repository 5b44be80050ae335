"""Environment variables that ask for portable arithmetic, which `arithmetic` sets up."""

import os

_LIBRARIES = {
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "avx2",
    "OPENBLAS_CORETYPE": "Haswell",
}
"""Environment by which Intel's processors with AVX2 round alike: MKL, PyTorch's own loops, and
NumPy's OpenBLAS. Where it is set, OpenBLAS takes matrix products, on one thread, and the compiled
kernels sum in one order and round each product by itself, as no compiler can change."""

ROOTS = "ROBUST_DIFFUSION_ROOTS"

PORTABLE = {**_LIBRARIES, ROOTS: "exact"}
"""Environment by which those of AMD round as Intel's do: besides, MKL takes no roots and arc
tangents. It starts them, in any environment, from a reciprocal root that each maker's
processors approximate in their own way. Records without it are older."""


def active_settings() -> dict[str, str]:
    """The variables of `PORTABLE` that are set, to any value."""
    return {key: value for key in PORTABLE if (value := os.environ.get(key))}


def named_in(processor: str) -> dict[str, str]:
    """The variables of `PORTABLE` in a record's `processor`: `AMD, AVX2, MKL_CBWR=COMPATIBLE`."""
    settings = dict(part.split("=", 1) for part in processor.split(", ") if "=" in part)
    return {key: value for key, value in settings.items() if key in PORTABLE}


def are_libraries_pinned() -> bool:
    """True if the environment pins the libraries, on all processors or only on Intel's."""
    return active_settings().items() >= _LIBRARIES.items()
