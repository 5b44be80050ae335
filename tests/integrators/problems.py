"""What tests of solvers share."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from torch import Tensor

from robust_diffusion.integrators.solver import Solver


def decay(t: Tensor, z: Tensor) -> Tensor:
    return -z


@contextmanager
def by_torchdiffeq() -> Iterator[None]:
    """Solve by torchdiffeq what otherwise runs in a loop of this package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Solver, "own_loop", False)
        yield
