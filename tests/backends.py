"""Backends of the sums over edges, for tests that compare them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from robust_diffusion.operators import set_backend
from robust_diffusion.operators.kernels import build, selection

FAST = ["torch", "compiled"]
BACKENDS = ["reference", *FAST]


def has_compiler() -> bool:
    """Whether there is one to build the compiled backend with."""
    try:
        build._compiler()
    except build.BuildError:
        return False
    return True


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


@contextmanager
def backend(name: str) -> Iterator[None]:
    """This backend within, the one from before afterwards."""
    if name == "compiled" and not has_compiler():
        pytest.skip("no C++ compiler")
    setting = selection._Setting
    before = setting.asked, setting.effective
    try:
        assert set_backend(name) == name
        yield
    finally:
        setting.asked, setting.effective = before
