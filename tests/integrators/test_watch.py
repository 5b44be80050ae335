import logging
from functools import partial

import pytest
import torch

from robust_diffusion.errors import TrainingError
from robust_diffusion.integrators import watch
from robust_diffusion.integrators.solver import Solver

pytestmark = pytest.mark.faults

FIXED = [("euler", 5, 5), ("implicit_adams", 2, 8)]


def decay(t: torch.Tensor, z: torch.Tensor, rate: float = 1.0) -> torch.Tensor:
    return -rate * z


@pytest.mark.parametrize(("method", "steps", "nfe"), FIXED)
@pytest.mark.parametrize("engine", ["auto", "torchdiffeq"])
def test_a_limit_ends_the_evaluation_that_is_one_too_many(
    method: str, steps: int, nfe: int, engine: str
) -> None:
    options = {"num_steps": steps, "engine": engine}
    z = torch.ones(3)
    free = Solver(method, **options).integrate(decay, z, 1.0)  # type: ignore[arg-type]
    bound = Solver(method, **options, max_nfe=nfe)  # type: ignore[arg-type]
    assert torch.equal(bound.integrate(decay, z, 1.0), free)
    assert torch.equal(bound.integrate(decay, z, 1.0), free)  # each solve is counted by itself
    low = Solver(method, **options, max_nfe=nfe - 1)  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match=rf"^solver\.max_nfe={nfe - 1}:"):
        low.integrate(decay, z, 1.0)


def test_a_runaway_of_small_steps_is_ended() -> None:
    solver = Solver("dopri5", rtol=1e-4, atol=1e-6, max_nfe=50)
    with pytest.raises(TrainingError, match="max_nfe=50"):
        solver.integrate(partial(decay, rate=5.0), torch.ones(3), 1e6)


def test_the_backward_pass_of_the_adjoint_is_counted_too() -> None:
    rate = torch.ones((), requires_grad=True)

    def rhs(t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return -rate * z

    solver = Solver("rk4", num_steps=2, adjoint=True, max_nfe=12)
    end = solver.integrate(rhs, torch.ones(3), 1.0, [rate])
    with pytest.raises(TrainingError, match=r"max_nfe=12"):
        end.sum().backward()


def test_many_evaluations_are_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MANY", 50)  # with the type checks of tests, 10,000 take minutes
    solver = Solver("euler", num_steps=51)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            solver.integrate(decay, torch.ones(1), 1.0)
    (message,) = caplog.messages
    assert message.startswith("solver=euler: 50 evaluations in one solve, at t=")
    caplog.clear()
    Solver("euler", num_steps=50).integrate(decay, torch.ones(1), 1.0)
    assert caplog.messages == []


def test_a_tolerance_below_rounding_is_told(caplog: pytest.LogCaptureFixture) -> None:
    solver = Solver("dopri5", rtol=1e-14, atol=1e-3)
    with caplog.at_level(logging.WARNING):
        solver.integrate(decay, torch.ones(1), 1.0)
    assert "solver.rtol=1e-14: below the rounding of float32" in caplog.text
    caplog.clear()
    solver = Solver("dopri5", rtol=1e-10, atol=1e-3)
    solver.integrate(decay, torch.ones(1, dtype=torch.float64), 1.0)
    assert caplog.text == ""
