"""Loops of equal steps against torchdiffeq, bit for bit."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.errors import ConfigError, TrainingError
from robust_diffusion.integrators import METHODS
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.operators import Graph
from tests.graphs import CHANNELS, SourceFlow, random_graph, random_signal
from tests.integrators.problems import (
    Maker,
    assert_identical,
    beltrami_in_training,
    by_torchdiffeq,
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
    solver = Solver(method, num_steps=num_steps)
    assert solver.own_loop
    own = solve(solver, make, t_end=t_end, dtype=dtype)
    with by_torchdiffeq():
        assert_identical(own, solve(solver, make, t_end=t_end, dtype=dtype))


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
@pytest.mark.parametrize("loop", [nullcontext, by_torchdiffeq])
def test_a_limit_ends_one_evaluation_more(method: Any, steps: int, nfe: int, loop: Any) -> None:
    z = torch.ones(3)
    bound = Solver(method, num_steps=steps, max_nfe=nfe)
    low = Solver(method, num_steps=steps, max_nfe=nfe - 1)
    with loop():
        free = Solver(method, num_steps=steps).integrate(decay, z, 1.0)
        assert torch.equal(bound.integrate(decay, z, 1.0), free)
        assert torch.equal(bound.integrate(decay, z, 1.0), free)  # each solve is counted by itself
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
