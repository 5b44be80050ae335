"""Derivatives of fractional order against exact solutions."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from robust_diffusion.integrators import (
    METHODS,
    solve_distributed,
    solve_fixed_step,
    solve_fractional,
)
from tests.integrators.problems import decay

ONE = torch.ones(1, 1, dtype=torch.float64)


@pytest.mark.parametrize("order", [0.5, 0.7, 0.9, 1.0])
def test_fractional_decay(order: float) -> None:
    x = -(1.5**order)  # by the power series of the function
    exact = sum(x**k / math.gamma(order * k + 1) for k in range(80))
    errors = [
        abs(solve_fractional(decay, ONE, 1.5, order, steps).item() - exact)
        for steps in (50, 100, 200)
    ]
    assert errors[-1] < 2e-3
    for coarse, fine in pairwise(errors):
        assert 1.8 < coarse / fine < 2.3


def test_fractional_source_and_order_one() -> None:
    euler = solve_fixed_step(lambda t, z: t - z, ONE, 1.0, METHODS["euler"], 5)
    torch.testing.assert_close(solve_fractional(lambda t, z: t - z, ONE, 1.0, 1.0, 5), euler)


def test_fractional_gradcheck() -> None:
    z = torch.tensor([0.3, -0.8], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: solve_fractional(lambda t, y: y.sin() - y, x, 1.0, 0.6, 4), (z,)
    )


@pytest.mark.parametrize("orders", [(1.0,), (0.6,), (0.3, 1.0), (0.2, 0.5, 0.9)])
def test_fractional_distributed_orders(orders: tuple[float, ...]) -> None:
    """Z = Z_0 + t, of which the derivative of order alpha is t^(1 - alpha) / Gamma(2 - alpha)."""
    weights = torch.arange(1.0, len(orders) + 1, dtype=torch.float64)

    def rhs(t: Tensor, _: Tensor) -> Tensor:
        parts = [w * t ** (1 - a) / math.gamma(2 - a) for w, a in zip(weights, orders, strict=True)]
        return torch.stack(parts).sum() * torch.ones_like(ONE)

    errors = [
        abs(solve_distributed(rhs, ONE, 1.5, orders, weights, steps).item() - ONE.item() - 1.5)
        for steps in (40, 80)
    ]
    assert errors[1] < max(0.56 * errors[0], 1e-12)


def test_fractional_single_order() -> None:
    one = torch.ones(1, dtype=torch.float64)
    by_differences, by_predictor = (
        solve(lambda t, y: y.sin() - y, ONE, 1.0, order, *rest)
        for solve, order, *rest in (
            (solve_distributed, (0.6,), one, 400),
            (solve_fractional, 0.6, 400),
        )
    )
    torch.testing.assert_close(by_differences, by_predictor, rtol=0.01, atol=0)
