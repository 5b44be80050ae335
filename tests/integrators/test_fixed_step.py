"""Loops of equal steps against torchdiffeq, bit for bit."""

import logging
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.errors import ConfigError, TrainingError
from robust_diffusion.integrators import METHODS
from robust_diffusion.integrators import solver as solving
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.operators import Graph
from tests.backends import BACKENDS, backend
from tests.graphs import CHANNELS, SourceFlow, random_graph, random_signal
from tests.integrators.problems import (
    Maker,
    assert_close,
    assert_identical,
    beltrami,
    beltrami_in_training,
    decay,
    driven,
    solve,
)
from tests.pairs import pairs

ADAMS = ["explicit_adams", "implicit_adams"]


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


def test_a_checkpointed_solve_in_inference_mode() -> None:
    problem = beltrami(torch.float64)
    solver = Solver("rk4", num_steps=3, engine="own", checkpoint=True)
    end = solver.integrate(problem.rhs, problem.z, 1.0)
    with torch.inference_mode():
        inferred = solver.integrate(problem.rhs, problem.z.detach(), 1.0)
    assert torch.equal(end, inferred)
    assert not inferred.requires_grad


RECOMPUTED = [Solver("euler", num_steps=12), Solver("rk4", num_steps=4)]
RECOMPUTED += [Solver("dopri5", rtol=1e-7, atol=1e-8)]


@pytest.mark.parametrize(
    ("solver", "make", "name"),
    pairs(RECOMPUTED, [driven, beltrami, beltrami_in_training], BACKENDS),
)
def test_a_checkpointed_solve_has_equal_gradients(solver: Solver, make: Maker, name: str) -> None:
    with backend(name):
        plain, lean, repeated = (
            solve(replace(solver, checkpoint=on), make, passes=passes)
            for on, passes in ((False, 1), (True, 1), (True, 3))
        )
    assert torch.equal(lean.end, plain.end)
    # The backward pass reads the norms of the matrices off the vectors that it finds, which may
    # round otherwise; the vectors themselves stay as they are, however often it runs.
    for other in (lean, repeated):
        assert_close(other, plain, 0.0 if make is not beltrami_in_training else 1e-13)
        for kept, expected in zip(other.buffers, plain.buffers, strict=True):
            assert torch.equal(kept, expected)
    assert lean.kept < plain.kept / (2 if make is driven else 3)
    if solver.num_steps:  # all evaluations are of steps that were taken
        assert len(lean.times) == 2 * len(plain.times)
        assert len(repeated.times) == 4 * len(plain.times)
        assert lean.kept == solver.num_steps * plain.end.nbytes + 8 * len(plain.times)


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


class Keeping(SourceFlow):
    """A flow that keeps Z(0) where neither the graph nor the module knows of it."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.kept: list[Tensor] = []

    def prepare(self, z: Tensor, graph: Graph) -> Graph:
        self.kept = [z]
        return graph

    def forward(self, t: Tensor, z: Tensor, graph: Graph) -> Tensor:
        return self.linear(self.rate * (self.kept[0] - z))


class Sharing(SourceFlow):
    """A flow of parameters that another module owns."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.others = [nn.Linear(channels, channels).double()]

    def forward(self, t: Tensor, z: Tensor, graph: Graph) -> Tensor:
        return self.others[0](super().forward(t, z, graph))


@pytest.mark.parametrize("cls", [Keeping, Sharing])
def test_a_gradient_that_would_be_lost_is_refused(cls: type[SourceFlow]) -> None:
    z, solver = random_signal().requires_grad_(), Solver("rk4", num_steps=2, adjoint=True)
    end = solver.solve(cls(CHANNELS).double(), z.tanh(), random_graph())
    with pytest.raises(ConfigError, match=r"solver\.adjoint=true"):
        end.sum().backward()


FIXED = [("euler", 5, 5), ("implicit_adams", 2, 8)]


@pytest.mark.faults
@pytest.mark.parametrize(("method", "steps", "nfe"), FIXED)
@pytest.mark.parametrize("engine", ["auto", "torchdiffeq"])
def test_a_limit_ends_one_evaluation_more(method: str, steps: int, nfe: int, engine: str) -> None:
    options = {"num_steps": steps, "engine": engine}
    z = torch.ones(3)
    free = Solver(method, **options).integrate(decay, z, 1.0)  # type: ignore[arg-type]
    bound = Solver(method, **options, max_nfe=nfe)  # type: ignore[arg-type]
    assert torch.equal(bound.integrate(decay, z, 1.0), free)
    assert torch.equal(bound.integrate(decay, z, 1.0), free)  # each solve is counted by itself
    low = Solver(method, **options, max_nfe=nfe - 1)  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match=rf"^solver\.max_nfe={nfe - 1}:"):
        low.integrate(decay, z, 1.0)


@pytest.mark.faults
def test_the_backward_pass_of_the_adjoint_is_counted_too() -> None:
    rate = torch.ones((), requires_grad=True)

    def rhs(t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return -rate * z

    solver = Solver("rk4", num_steps=2, adjoint=True, max_nfe=12)
    end = solver.integrate(rhs, torch.ones(3), 1.0, [rate])
    with pytest.raises(TrainingError, match=r"max_nfe=12"):
        end.sum().backward()


@pytest.mark.faults
def test_many_evaluations_are_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solving, "MANY", 50)  # with the type checks of tests, 10,000 take minutes
    solver = Solver("euler", num_steps=51)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            solver.integrate(decay, torch.ones(1), 1.0)
    (message,) = caplog.messages
    assert message.startswith("solver=euler: 50 evaluations in one solve, at t=")
    caplog.clear()
    Solver("euler", num_steps=50).integrate(decay, torch.ones(1), 1.0)
    assert caplog.messages == []


@pytest.mark.faults
def test_a_tolerance_below_rounding_is_told(caplog: pytest.LogCaptureFixture) -> None:
    solver = Solver("dopri5", rtol=1e-14, atol=1e-3)
    with caplog.at_level(logging.WARNING):
        solver.integrate(decay, torch.ones(1), 1.0)
    assert "solver.rtol=1e-14: below the rounding of float32" in caplog.text
    caplog.clear()
    solver = Solver("dopri5", rtol=1e-10, atol=1e-3)
    solver.integrate(decay, torch.ones(1, dtype=torch.float64), 1.0)
    assert caplog.text == ""
