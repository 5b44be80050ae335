"""The adjoint of flows of Z(0): nothing is lost, nothing counted twice."""

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.errors import ConfigError
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.operators import Graph
from tests.graphs import CHANNELS, SourceFlow, random_graph, random_signal


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


def test_the_adjoint_refuses_nothing_that_it_was_given() -> None:
    z, factor = random_signal().requires_grad_(), torch.ones((), dtype=torch.float64)
    inner = 2 * factor.requires_grad_()
    solver = Solver("rk4", num_steps=2, adjoint=True)
    solver.integrate(lambda t, x: inner * x, z, 1.0, (inner,)).sum().backward()
    assert factor.grad is not None
