"""Flows that follow from an energy of positions and momenta, by Hamilton's equations."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.checks import Width
from robust_diffusion.flows.base import Flow, State
from robust_diffusion.operators import Graph, NodeSignal

Scale = Literal["graph", "node"]

_SMALLEST_SQUARE = 1e-12
"""Keeps the derivatives of a norm finite where all is 0."""


class HamiltonianFlow(Flow):
    r"""Hamilton's equations for an energy H(q, p).

    .. math:: q' = \partial H / \partial p, \quad p' = -\partial H / \partial q

    with q(0) = p(0) = Z. q is passed on. A subclass writes the energy's gradient out in operators
    that can be differentiated, for training and for attacks.

    Args:
        channels: Width d of the node features; `options` are those of `Flow`.
        scale: `node` for a sum over nodes, `graph` for an energy of the whole graph, as published.
    """

    def __init__(self, channels: Width, *, scale: Scale = "node", **options: Any) -> None:
        super().__init__(channels, **options)
        self.scale = scale

    def initial_state(self, z: NodeSignal, graph: Graph) -> State:
        """(q, p) of the features, which are both."""
        return torch.cat([z, z], 1)

    def norm_gradient(self, values: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """Gradient of the length of all values together; of half its square at `scale=node`."""
        if self.scale == "node":
            return values
        return values / (values.square().sum() + _SMALLEST_SQUARE).sqrt()
