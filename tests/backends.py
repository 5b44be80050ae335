"""Backends of the sums over edges, for tests that compare them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from robust_diffusion.operators import backend_set, current_backend
from robust_diffusion.operators.kernels import build

BACKENDS = ["torch", "compiled"]


def has_compiler() -> bool:
    try:
        build._compiler()
    except build.BuildError:
        return False
    return True


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


@contextmanager
def backend(name: Any) -> Iterator[None]:
    if name == "compiled" and not has_compiler():
        pytest.skip("no C++ compiler")
    if name == "triton":
        pytest.importorskip("triton", minversion="3.7")
    with backend_set(name):
        assert current_backend() == name
        yield
