"""Dormand and Prince's method against torchdiffeq's and against exact solutions."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torchdiffeq._impl import rk_common

from robust_diffusion.errors import TrainingError
from robust_diffusion.integrators import (
    METHODS,
    solve_distributed,
    solve_fixed_step,
    solve_fractional,
)
from robust_diffusion.integrators.solver import Solver
from tests.integrators.problems import (
    Maker,
    assert_close,
    beltrami,
    beltrami_in_training,
    by_torchdiffeq,
    decay,
    driven,
    solve,
)
from tests.pairs import pairs

ONES = torch.ones(2, 2, dtype=torch.float64)

Rhs = Callable[[Tensor, Tensor], Tensor]


def dopri5(tolerance: float) -> Solver:
    return Solver("dopri5", rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize(
    ("make", "tolerance", "t_end"),
    pairs([driven, beltrami, beltrami_in_training], [1e-2, 1e-7], [0.3, 5.0]),
)
def test_steps_and_numbers_are_torchdiffeqs(
    make: Maker, tolerance: float, t_end: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torchdiffeq differentiates through the length of the first step, and of no other.
    first_step = torch.no_grad()(rk_common._select_initial_step)
    monkeypatch.setattr(rk_common, "_select_initial_step", first_step)
    own = solve(dopri5(tolerance), make, t_end=t_end)
    with by_torchdiffeq():
        theirs = solve(dopri5(tolerance), make, t_end=t_end)
    assert len(own.times) == len(theirs.times)
    torch.testing.assert_close(own.times, theirs.times, rtol=0, atol=1e-8)
    assert_close(own, theirs, 1e-10)


def harmonic(t: Tensor, z: Tensor) -> Tensor:
    return torch.stack([z[1], -z[0]])


EXACT: dict[str, tuple[Rhs, Callable[[float], Tensor]]] = {
    "decay": (lambda t, z: -z, lambda t: math.exp(-t) * ONES),
    "driven": (lambda t, z: 2 * t * z, lambda t: math.exp(t**2) * ONES),
    "blow up": (lambda t, z: z.square() / 4, lambda t: ONES / (1 - t / 4)),
    "harmonic": (
        harmonic,
        lambda t: torch.tensor(
            [[math.cos(t) + math.sin(t)] * 2, [math.cos(t) - math.sin(t)] * 2], dtype=torch.float64
        ),
    ),
    "late": (  # asleep until t = 1, so that the first steps are far too long
        lambda t, z: 50 * torch.exp(-50 * (t - 1).square()) * torch.ones_like(z),
        lambda t: (
            ONES * (1 + (math.erf(50**0.5 * (t - 1)) + math.erf(50**0.5)) * (12.5 * math.pi) ** 0.5)
        ),
    ),
}


@pytest.mark.parametrize("problem", EXACT)
@pytest.mark.parametrize("t_end", [0.1, 1.7])
def test_exact_solutions_to_the_tolerance(problem: str, t_end: float) -> None:
    rhs, exact = EXACT[problem]
    expected = exact(t_end)
    for tolerance in (1e-3, 1e-6, 1e-9):
        end = dopri5(tolerance).integrate(rhs, ONES, t_end)
        assert (end - expected).abs().max() < 50 * tolerance * expected.abs().max()


def smooth_until(end: float, beyond: float) -> Rhs:
    return lambda t, z: torch.where(t < end, z, beyond)


STUCK: dict[str, tuple[Rhs, Tensor]] = {
    "blows up": (lambda t, z: z.square(), ONES),
    "not a number later": (smooth_until(0.5, math.nan), ONES),
    "infinite slope later": (smooth_until(0.5, math.inf), ONES),
    "infinite state, finite slope": (lambda t, z: torch.ones_like(z), ONES * math.inf),
    "infinite slope": (lambda t, z: z * math.inf, ONES),
    "singular": (lambda t, z: 1 / (1 - t) ** 2 * z, ONES),
}


@pytest.mark.parametrize("problem", STUCK)
def test_a_solve_that_is_stuck_is_an_error(problem: str) -> None:
    rhs, z = STUCK[problem]
    z = z.clone().requires_grad_()
    with pytest.raises(TrainingError, match="solver=dopri5"):
        dopri5(1e-3).integrate(rhs, z, 2.0)


ONE = torch.ones(1, 1, dtype=torch.float64)


@pytest.mark.parametrize("order", [0.5, 0.7, 0.9, 1.0])
def test_decay_converges_to_the_mittag_leffler_function(order: float) -> None:
    x = -(1.5**order)  # by the power series of the function
    exact = sum(x**k / math.gamma(order * k + 1) for k in range(80))
    errors = [
        abs(solve_fractional(decay, ONE, 1.5, order, steps).item() - exact)
        for steps in (50, 100, 200)
    ]
    assert errors[-1] < 2e-3
    for coarse, fine in pairwise(errors):
        assert 1.8 < coarse / fine < 2.3


def test_a_source_in_time_and_eulers_method_at_order_one() -> None:
    euler = solve_fixed_step(lambda t, z: t - z, ONE, 1.0, METHODS["euler"], 5)
    torch.testing.assert_close(solve_fractional(lambda t, z: t - z, ONE, 1.0, 1.0, 5), euler)


def test_gradcheck_through_the_steps() -> None:
    z = torch.tensor([0.3, -0.8], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: solve_fractional(lambda t, y: y.sin() - y, x, 1.0, 0.6, 4), (z,)
    )


@pytest.mark.parametrize("orders", [(1.0,), (0.6,), (0.3, 1.0), (0.2, 0.5, 0.9)])
def test_distributed_orders_converge_to_a_known_solution(orders: tuple[float, ...]) -> None:
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


def test_one_order_of_weight_1_is_a_fractional_derivative() -> None:
    one = torch.ones(1, dtype=torch.float64)
    by_differences, by_predictor = (
        solve(lambda t, y: y.sin() - y, ONE, 1.0, order, *rest)
        for solve, order, *rest in (
            (solve_distributed, (0.6,), one, 400),
            (solve_fractional, 0.6, 400),
        )
    )
    torch.testing.assert_close(by_differences, by_predictor, rtol=0.01, atol=0)
