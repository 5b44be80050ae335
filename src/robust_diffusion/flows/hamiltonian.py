"""Flows that follow from an energy of positions and momenta, by Hamilton's equations."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.checks import Width
from robust_diffusion.flows.base import Flow, State, Time
from robust_diffusion.operators import Graph, NodeSignal

Scale = Literal["graph", "node"]

SMALLEST_SQUARE = 1e-12
"""Keeps the derivatives of a norm finite where all is 0."""


class HamiltonianFlow(Flow):
    r"""Hamilton's equations for an energy H(q, p); a subclass defines `energy` alone.

    .. math:: q' = \partial H / \partial p, \quad p' = -\partial H / \partial q

    with q(0) = p(0) = Z. q is handed on. The energy is differentiated by autograd inside the
    right-hand side, which itself can be differentiated, for training and for attacks; so `energy`
    is made of what can be differentiated twice: torch's functions, `spmm`, and `edge_softmax` with
    `twice_differentiable`.

    Args:
        channels: Width d of the node features; `options` are those of `Flow`.
        scale: `node` for a sum over nodes, `graph` for an energy of the whole graph, as published.
    """

    def __init__(self, channels: Width, *, scale: Scale = "node", **options: Any) -> None:
        super().__init__(channels, **options)
        self.scale = scale

    @abstractmethod
    def energy(self, q: NodeSignal, p: NodeSignal, graph: Graph) -> Float[Tensor, ""]:
        """H of positions and momenta."""

    def initial_state(self, z: NodeSignal, graph: Graph) -> State:
        """(q, p) of the features, which are both."""
        return torch.cat([z, z], 1)

    def features(self, state: State) -> NodeSignal:
        """The positions q, the first half."""
        return state[:, : self.channels]

    def forward(self, t: Time, z: State, graph: Graph) -> State:
        """Velocity and force: the energy's gradient, turned by a right angle."""
        differentiable = torch.is_grad_enabled()
        # A gradient is needed even where nobody asks for one of the result, as in validation.
        with torch.inference_mode(mode=False), torch.enable_grad():
            if z.is_inference():
                z = z.clone()
            if graph.weight.is_inference():
                graph = replace(graph, weight=graph.weight.clone())
            # A new tensor, which the energy alone depends on.
            at = z.view_as(z) if z.requires_grad and differentiable else z.detach().requires_grad_()
            q, p = at.chunk(2, 1)
            energy = self.energy(q, p, graph)
            (gradient,) = torch.autograd.grad(energy, at, create_graph=differentiable)
        by_q, by_p = gradient.chunk(2, 1)
        return torch.cat([by_p, -by_q], 1)

    def norm(self, values: Float[Tensor, "n c"]) -> Float[Tensor, ""]:
        """Length of all values together; half its square, a sum over nodes, at `scale=node`."""
        squared = values.square().sum()
        return squared / 2 if self.scale == "node" else (squared + SMALLEST_SQUARE).sqrt()
