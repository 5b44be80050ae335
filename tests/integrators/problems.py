"""Initial value problems, and all that a solver makes of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.flows import Beltrami
from robust_diffusion.integrators import RightHandSide
from robust_diffusion.integrators.solver import Solver
from tests.graphs import CHANNELS, random_graph, random_signal, with_weight, without_type_checks


@dataclass
class Problem:
    """A right-hand side, the module inside, an initial state, and what else has a gradient."""

    rhs: RightHandSide
    module: nn.Module
    z: Tensor
    leaves: list[Tensor]


Maker = Callable[[torch.dtype], Problem]


def decay(t: Tensor, z: Tensor) -> Tensor:
    return -z


class Driven(nn.Module):
    """Nonlinear, and dependent on time in every term."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.matrix = nn.Parameter(torch.randn(CHANNELS, CHANNELS, generator=generator))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.tanh((z + t) @ self.matrix) * torch.cos(3 * t) - t * z.sin()


def driven(dtype: torch.dtype) -> Problem:
    module, z = Driven().to(dtype), random_signal().to(dtype).requires_grad_()
    return Problem(module, module, z, [z, module.matrix])


def beltrami(dtype: torch.dtype, *, training: bool = False) -> Problem:
    torch.manual_seed(0)
    flow = Beltrami(CHANNELS, heads=2, attention_channels=6).to(dtype).train(training)
    graph, z = random_graph(), random_signal().to(dtype).requires_grad_()
    weight = graph.weight.to(dtype).requires_grad_()
    graph = with_weight(graph, weight)
    return Problem(lambda t, x: flow(t, x, graph), flow, z, [z, weight, *flow.parameters()])


beltrami_in_training = partial(beltrami, training=True)
"""Each evaluation takes one more step of the power iteration of the spectral norms."""


@contextmanager
def by_torchdiffeq() -> Iterator[None]:
    """Solve by torchdiffeq what otherwise runs in a loop of this package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Solver, "own_loop", False)
        yield


@dataclass
class Solved:
    """What came of a solve, its backward pass included."""

    times: list[Tensor]
    end: Tensor
    gradients: list[Tensor]
    buffers: list[Tensor]


def solve(
    solver: Solver,
    make: Maker,
    *,
    t_end: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> Solved:
    """Solve a new instance of the problem and differentiate."""
    problem = make(dtype)
    times: list[Tensor] = []

    def rhs(t: Tensor, z: Tensor) -> Tensor:
        times.append(t.detach().clone())
        return problem.rhs(t, z)

    with without_type_checks():  # of the flow: they take longer than it does
        end = solver.integrate(rhs, problem.z, t_end)
        loss = (end * random_signal(1, end.size(1), end.size(0)).to(dtype)).sum()
        gradients = torch.autograd.grad(loss, problem.leaves)
    buffers = [buffer.clone() for buffer in problem.module.buffers()]
    return Solved(times, end.detach(), list(gradients), buffers)


def assert_identical(actual: Solved, expected: Solved) -> None:
    for name in ("times", "gradients", "buffers"):
        pairs = zip(getattr(actual, name), getattr(expected, name), strict=True)
        assert all(torch.equal(*pair) and pair[0].dtype == pair[1].dtype for pair in pairs), name
    assert torch.equal(actual.end, expected.end)
