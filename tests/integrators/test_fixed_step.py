"""Loops of equal steps against torchdiffeq, bit for bit, and what ends or refuses a solve."""

from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.errors import ConfigError, TrainingError
from robust_diffusion.flows import Beltrami, Flow
from robust_diffusion.integrators import METHODS
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.operators import Graph
from tests.graphs import (
    CHANNELS,
    SourceFlow,
    random_graph,
    random_signal,
    with_weight,
    without_type_checks,
)
from tests.integrators.problems import by_torchdiffeq, decay


class Driven(SourceFlow):
    """Nonlinear, and dependent on time in every term."""

    def forward(self, t: Tensor, z: Tensor, graph: Graph) -> Tensor:
        return torch.tanh(self.linear(z + t)) * torch.cos(3 * t) - t * z.sin()


def solved(
    solver: Solver, cls: type[Flow], *, t_end: float, dtype: torch.dtype
) -> list[torch.Tensor]:
    """Return the times of the evaluations, the end, all gradients and the buffers of a solve.

    In training, each evaluation of Beltrami takes one more step of the power iteration.
    """
    torch.manual_seed(0)
    options = {"heads": 2, "attention_channels": 6} if cls is Beltrami else {}
    flow, graph, times = cls(CHANNELS, **options).to(dtype).train(), random_graph(), []
    z, weight = (x.to(dtype).requires_grad_() for x in (random_signal(), graph.weight))
    flow.register_forward_pre_hook(lambda _, inputs: times.append(inputs[0].clone()))
    with without_type_checks():  # they take longer than the flow does
        end = solver.integrate(partial(flow, graph=with_weight(graph, weight)), z, t_end)
        leaves = [z, weight, *flow.parameters()]
        loss = (end * random_signal(1).to(dtype)).sum()
        gradients = torch.autograd.grad(loss, leaves, materialize_grads=True, allow_unused=True)
    assert gradients[0].any()
    return [*times, end, *gradients, *flow.buffers()]


LOOPS = [
    *product(sorted(METHODS), (1, 2, 7)),
    *product(["explicit_adams", "implicit_adams"], (1, 2)),
]


@pytest.mark.parametrize(("t_end", "dtype"), [(1.0, torch.float64), (0.3, torch.float32)])
@pytest.mark.parametrize(("method", "num_steps"), LOOPS)
@pytest.mark.parametrize("cls", [Driven, Beltrami])
def test_fixed_step_bits_of_torchdiffeq(
    method: Any, num_steps: int, cls: type[Flow], t_end: float, dtype: torch.dtype
) -> None:
    solver = Solver(method, num_steps=num_steps)
    assert solver.own_loop
    own = solved(solver, cls, t_end=t_end, dtype=dtype)
    with by_torchdiffeq():
        expected = solved(solver, cls, t_end=t_end, dtype=dtype)
    for ours, theirs in zip(own, expected, strict=True):
        assert torch.equal(ours, theirs)
        assert ours.dtype == theirs.dtype


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
def test_fixed_step_lost_gradient(cls: type[SourceFlow]) -> None:
    z, solver = random_signal().requires_grad_(), Solver("rk4", num_steps=2, adjoint=True)
    end = solver.solve(cls(CHANNELS).double(), z.tanh(), random_graph())
    with pytest.raises(ConfigError, match=r"solver\.adjoint=true"):
        end.sum().backward()


FIXED = [("euler", 5, 5), ("implicit_adams", 2, 8)]


@pytest.mark.faults
@pytest.mark.parametrize(("method", "steps", "nfe"), FIXED)
@pytest.mark.parametrize("loop", [nullcontext, by_torchdiffeq])
def test_fixed_step_limit(method: Any, steps: int, nfe: int, loop: Any) -> None:
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
def test_count_evaluations_adjoint() -> None:
    rate = torch.ones((), requires_grad=True)

    def rhs(t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return -rate * z

    solver = Solver("rk4", num_steps=2, adjoint=True, max_nfe=12)
    end = solver.integrate(rhs, torch.ones(3), 1.0, [rate])
    with pytest.raises(TrainingError, match=r"max_nfe=12"):
        end.sum().backward()
