import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from robust_diffusion.integrators import METHODS, solve_fixed_step, solve_fractional

ONES = torch.ones(1, 1, dtype=torch.float64)


def decay(t: Tensor, z: Tensor) -> Tensor:
    return -z


def mittag_leffler(order: float, x: float) -> float:
    """E_order(x), the solution of D^order y = -y at x = -t^order, by its power series."""
    return sum(x**k / math.gamma(order * k + 1) for k in range(80))


@pytest.mark.parametrize("order", [0.5, 0.7, 0.9, 1.0])
def test_decay_converges_to_the_mittag_leffler_function(order: float) -> None:
    exact = mittag_leffler(order, -(1.5**order))
    errors = [
        abs(solve_fractional(decay, ONES, 1.5, order, steps).item() - exact)
        for steps in (50, 100, 200)
    ]
    assert errors[-1] < 2e-3
    for coarse, fine in pairwise(errors):
        assert 1.8 < coarse / fine < 2.3


def test_a_source_that_is_constant_is_integrated_exactly() -> None:
    found = solve_fractional(lambda t, z: torch.ones_like(z), ONES, 2.0, 0.4, 7)
    torch.testing.assert_close(found, ONES + 2.0**0.4 / math.gamma(1.4))


def test_a_source_in_time_and_eulers_method_at_order_one() -> None:
    euler = solve_fixed_step(lambda t, z: t - z, ONES, 1.0, METHODS["euler"], 5)
    torch.testing.assert_close(solve_fractional(lambda t, z: t - z, ONES, 1.0, 1.0, 5), euler)


def test_gradcheck_through_the_steps() -> None:
    z = torch.tensor([0.3, -0.8], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: solve_fractional(lambda t, y: y.sin() - y, x, 1.0, 0.6, 4), (z,)
    )
