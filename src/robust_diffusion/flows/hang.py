"""Hamiltonian flows for an energy of positions and momenta, and HANG."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.checks import NonNegative, Width, validated
from robust_diffusion.flows.base import Flow, ReadFeatures, State, Time, refuse_ignored
from robust_diffusion.operators import EdgeValues, Graph, NodeSignal, spmm, symmetric_weights

Scale = Literal["graph", "node"]

_SMALLEST_SQUARE = 1e-12
"""Keeps the derivatives of a norm finite at 0."""


@validated("flow")
class HamiltonianFlow(Flow):
    r"""Hamilton's equations for an energy H(q, p).

    .. math:: q' = \partial H / \partial p, \quad p' = -\partial H / \partial q

    with q(0) = p(0) = Z. q is the output. A subclass implements the gradient of the energy with
    differentiable operators, for training and for attacks.

    Args:
        channels: Width d of the node features; see `Flow` for all arguments not listed.
        scale: `node` for a sum over nodes, `graph` for an energy of the whole graph, as published.
    """

    def __init__(
        self,
        channels: Width,
        *,
        scale: Scale = "node",
        t_end: NonNegative = 1.0,
    ) -> None:
        super().__init__(channels, t_end=t_end)
        self.scale = scale

    def initial_state(self, z: NodeSignal, graph: Graph) -> State:
        """Return (q, p), both equal to the features."""
        return torch.cat([z, z], 1)

    def norm_gradient(self, values: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """Return the gradient of the norm of all values, or of half its square for `scale=node`."""
        if self.scale == "node":
            return values
        return values / (values.square().sum() + _SMALLEST_SQUARE).sqrt()


@validated("flow")
class Hang(HamiltonianFlow):
    r"""Hamiltonian flow of an energy that two graph convolutions learn.

    .. math:: H(q, p) = \lVert \hat{A} \tanh(\hat{A} [q, p] W_1 + b_1) W_2 + b_2 \rVert

    A is D^{-1/2} (A + I) D^{-1/2} and W_2 has one column. The norm is over all nodes, so the speed
    of a node decreases with the root of their number, and depends on nodes that no path leads to.
    `scale=node` uses half the square of the norm. The whole state then follows the same path at a
    speed that differs by the factor H(0), and the speed of each node only depends on its
    neighbours.

    Reference: H_net of HANG, arXiv:2310.06396. For the arguments see `HamiltonianFlow`.

    Deviation:
        `scale=node` is the default: on Cora, the published energy hardly moves a node. In the
        authors' experiments, p is the output, and a learned share of the initial state is added to
        q' (`add_source`). In the text, q is the output, as here.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import Hang
        >>> GraphPDE(5, out_channels=3, flow=Hang).layers[0].flow.scale
        'node'
    """

    def __init__(
        self,
        channels: Width,
        *,
        scale: Scale = "node",
        t_end: NonNegative = 1.0,
    ) -> None:
        super().__init__(channels, scale=scale, t_end=t_end)
        self.inner = nn.Linear(2 * channels, channels)
        self.outer = nn.Linear(channels, 1)

    def edge_weights(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Return the edge weights divided by the root of the degrees at both ends."""
        return symmetric_weights(graph)

    def forward(self, t: Time, z: State, graph: Graph) -> State:
        """Compute velocity and force; for a narrowed state, the gradient by [q, p] W_1."""
        if "turned" in graph.carried:
            over_degrees, turned = graph.carried["over_degrees"], graph.carried["turned"]
            twice_hidden = spmm(over_degrees, z @ turned, graph) + graph.carried["twice_hidden"]
            return self._gradient(twice_hidden, over_degrees, graph)
        over_degrees, (by_q, by_p) = self.edge_weights(z, graph), self.inner.weight.chunk(2, 1)
        twice_hidden = self._twice_hidden(z @ self.inner.weight.T, over_degrees, graph)
        return self._gradient(twice_hidden, over_degrees, graph) @ torch.cat([by_p, -by_q], 1)

    def narrowed(self, z: NodeSignal, graph: Graph) -> tuple[State, Graph, ReadFeatures]:
        """Narrow the state to the integral C of the energy's gradient by [q, p] W_1.

        H only depends on [q, p] W_1 = q W_q^T + p W_p^T, so q = Z + C W_p and p = Z - C W_q.
        """
        equation = "forward", "initial_state", "features", "edge_weights"
        refuse_ignored(self, Hang, equation, "narrowed = Flow.narrowed")
        over_degrees, (by_q, by_p) = self.edge_weights(z, graph), self.inner.weight.chunk(2, 1)
        graph = graph.carrying(
            over_degrees=over_degrees,
            twice_hidden=self._twice_hidden(z @ (by_q + by_p).T, over_degrees, graph),
            turned=2 * (by_p @ by_q.T - by_q @ by_p.T),
        )
        return torch.zeros_like(z), graph, lambda end: torch.addmm(z, end, by_p)

    def _twice_hidden(self, seen: NodeSignal, over_degrees: EdgeValues, graph: Graph) -> NodeSignal:
        return 2 * (spmm(over_degrees, seen, graph) + self.inner.bias)

    def _gradient(
        self, twice_hidden: NodeSignal, over_degrees: EdgeValues, graph: Graph
    ) -> NodeSignal:
        """Compute the derivative by [q, p] W_1, through both convolutions and back."""
        # tanh x = 2 s - 1 and its derivative is 4 s (1 - s), with s the sigmoid of 2 x, which is
        # five times faster in torch than tanh.
        s, outer = torch.sigmoid(twice_hidden), self.outer.weight
        out = spmm(over_degrees, 2 * (s @ outer.T) - outer.sum(), graph) + self.outer.bias
        back = spmm(over_degrees, 4 * self.norm_gradient(out), graph, transposed=True)
        slope = torch.addcmul(s, s, s, value=-1)
        return spmm(over_degrees, slope * (back @ outer), graph, transposed=True)
