"""Loops of equal steps against torchdiffeq, bit for bit."""

import math

import pytest
import torch

from robust_diffusion.errors import ConfigError
from robust_diffusion.integrators import METHODS
from robust_diffusion.integrators.solver import ADAPTIVE_METHODS, FIXED_STEP_METHODS, Solver
from tests.backends import BACKENDS, backend
from tests.integrators.problems import (
    Maker,
    assert_close,
    assert_identical,
    beltrami,
    beltrami_in_training,
    driven,
    solve,
)
from tests.pairs import pairs

ADAMS = ["explicit_adams", "implicit_adams", "fixed_adams"]


@pytest.mark.parametrize(("t_end", "dtype"), [(1.0, torch.float64), (0.3, torch.float32)])
@pytest.mark.parametrize(
    ("method", "num_steps", "make"),
    [
        *pairs(sorted(METHODS), (1, 2, 7), [driven, beltrami_in_training]),
        *pairs(ADAMS, (1, 2), [driven, beltrami_in_training]),
    ],
)
def test_every_bit_is_torchdiffeqs(
    method: str, num_steps: int, make: Maker, t_end: float, dtype: torch.dtype
) -> None:
    own, theirs = (
        solve(Solver(method, num_steps=num_steps, engine=engine), make, t_end=t_end, dtype=dtype)
        for engine in ("own", "torchdiffeq")
    )
    assert_identical(own, theirs)


def test_auto_takes_the_own_loop_where_there_is_one() -> None:
    for method in FIXED_STEP_METHODS:
        adams = method in ADAMS
        assert Solver(method, num_steps=2).own_loop
        assert Solver(method, num_steps=3).own_loop != adams
        assert not Solver(method, num_steps=2, engine="torchdiffeq").own_loop
        assert not Solver(method, num_steps=2, adjoint=True).own_loop
    for method in ADAPTIVE_METHODS - {"scipy_solver"}:
        assert Solver(method, rtol=1e-3, atol=1e-3).own_loop == (method == "dopri5")


def test_a_checkpointed_solve_in_inference_mode() -> None:
    problem = beltrami(torch.float64)
    solver = Solver("rk4", num_steps=3, engine="own", checkpoint=True)
    end = solver.integrate(problem.rhs, problem.z, 1.0)
    with torch.inference_mode():
        inferred = solver.integrate(problem.rhs, problem.z.detach(), 1.0)
    assert torch.equal(end, inferred)
    assert not inferred.requires_grad


@pytest.mark.parametrize(
    ("method_and_steps", "make", "name"),
    pairs(
        [("euler", 12), ("rk4", 4), ("fixed_adams", 2)],
        [driven, beltrami, beltrami_in_training],
        BACKENDS,
    ),
)
def test_a_checkpointed_solve_has_the_same_gradients_and_keeps_states_alone(
    method_and_steps: tuple[str, int], make: Maker, name: str
) -> None:
    method, num_steps = method_and_steps
    with backend(name):
        plain, lean, repeated = (
            solve(Solver(method, num_steps=num_steps, checkpoint=on), make, passes=passes)
            for on, passes in ((False, 1), (True, 1), (True, 3))
        )
    assert torch.equal(lean.end, plain.end)
    # The backward pass reads the norms of the matrices off the vectors that it finds, which may
    # round otherwise; the vectors themselves stay as they are, however often it runs.
    for other in (lean, repeated):
        assert_close(other, plain, 0.0 if make is not beltrami_in_training else 1e-14)
        for kept, expected in zip(other.buffers, plain.buffers, strict=True):
            assert torch.equal(kept, expected)
    assert len(lean.times) == 2 * len(plain.times)
    assert len(repeated.times) == 4 * len(plain.times)
    state, times = plain.end.nbytes, 8 * len(plain.times)
    assert lean.kept == num_steps * state + times
    assert lean.kept < plain.kept / 4 * (1 if make is not driven else 2)


@pytest.mark.parametrize(
    "options",
    [
        *[{"method": method, "num_steps": 3} for method in ADAMS],
        {"method": "rk4", "num_steps": 2, "adjoint": True},
        {"method": "dopri8", "rtol": 1e-3, "atol": 1e-3},
        {"method": "dopri5", "rtol": 1e-3, "atol": 1e-3, "adjoint": True},
        {"method": "scipy_solver", "rtol": 1e-3, "atol": 1e-3, "adjoint": True},
    ],
    ids=str,
)
def test_what_needs_an_own_loop_is_refused_where_there_is_none(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"solver\.engine=own"):
        Solver(**options, engine="own")
    for engine in ("auto", "torchdiffeq"):
        Solver(**options, engine=engine)
        with pytest.raises(ConfigError, match=r"solver\.checkpoint=true"):
            Solver(**options, engine=engine, checkpoint=True)


def test_a_single_step_of_each_method_by_hand() -> None:
    # dz/dt = t + z from z(0) = 1 by one step of length 1, from the methods' tableaus.
    ends = {"euler": 2.0, "midpoint": 3.0, "heun2": 3.0, "heun3": 10 / 3, "rk4": 41 / 12}
    assert ends.keys() == METHODS.keys()
    one = torch.ones(1, 1, dtype=torch.float64)
    for method, expected in ends.items():
        end = Solver(method, num_steps=1).integrate(lambda t, z: t + z, one, 1.0)
        assert end.item() == pytest.approx(expected, rel=1e-14)
    assert 2 * math.e - 2 == pytest.approx(ends["rk4"], abs=0.03)
