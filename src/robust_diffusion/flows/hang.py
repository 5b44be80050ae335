"""Flows of Hamilton's equations for an energy of positions and momenta, and HANG."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.checks import Width
from robust_diffusion.flows.base import Features, Flow, State, Time
from robust_diffusion.operators import EdgeValues, Graph, NodeSignal, spmm, symmetric_weights

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


class Hang(HamiltonianFlow):
    r"""Hamiltonian flow of an energy that two graph convolutions learn.

    .. math:: H(q, p) = \lVert \hat{A} \tanh(\hat{A} [q, p] W_1 + b_1) W_2 + b_2 \rVert

    A is D^{-1/2} (A + I) D^{-1/2} and W_2 has one column. The length is over all nodes, so that
    the speed of a node falls with the root of their number, and depends on nodes that no path
    leads to. `scale=node` takes half its square: the same path of the whole state, but for a
    change of its speed by H(0), and a speed of each node that depends on its neighbours alone.

    Reference: H_net of HANG, arXiv:2310.06396. Arguments as `HamiltonianFlow`.

    Deviation:
        `scale=node` is the default: on Cora the published energy hardly moves a node.
        In the authors' experiments p is passed on, and a learned share of the initial state is
        added to q' (`add_source`). The text hands on q, as here.

    Examples:
        >>> from robust_diffusion import GraphPDE, Hang
        >>> GraphPDE(5, out_channels=3, flow=Hang).layers[0].flow.scale
        'node'
    """

    def __init__(self, channels: Width, **options: Any) -> None:
        super().__init__(channels, **options)
        self.inner = nn.Linear(2 * channels, channels)
        self.outer = nn.Linear(channels, 1)

    def edge_weights(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Edge weight over the root of the degrees at both ends."""
        return symmetric_weights(graph)

    def forward(self, t: Time, z: State, graph: Graph) -> State:
        """Velocity and force; of a narrowed state, the energy's gradient by [q, p] W_1."""
        if "turned" in graph.carried:
            over_degrees, turned = graph.carried["over_degrees"], graph.carried["turned"]
            twice_hidden = spmm(over_degrees, z @ turned, graph) + graph.carried["twice_hidden"]
            return self._gradient(twice_hidden, over_degrees, graph)
        over_degrees, (by_q, by_p) = self.edge_weights(z, graph), self.inner.weight.chunk(2, 1)
        twice_hidden = self._twice_hidden(z @ self.inner.weight.T, over_degrees, graph)
        return self._gradient(twice_hidden, over_degrees, graph) @ torch.cat([by_p, -by_q], 1)

    def narrowed(self, z: NodeSignal, graph: Graph) -> tuple[State, Graph, Features]:
        """The integral C of the energy's gradient by [q, p] W_1, which is all that H sees.

        q = Z + C W_p and p = Z - C W_q, where [q, p] W_1 = q W_q^T + p W_p^T.
        """
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
        """The derivative by [q, p] W_1, through both convolutions and back."""
        # tanh x = 2 s - 1 and its derivative 4 s (1 - s), with s the sigmoid of 2 x, for which
        # torch takes a fifth of the time of tanh.
        s, outer = torch.sigmoid(twice_hidden), self.outer.weight
        out = spmm(over_degrees, 2 * (s @ outer.T) - outer.sum(), graph) + self.outer.bias
        back = spmm(over_degrees, 4 * self.norm_gradient(out), graph, transposed=True)
        slope = torch.addcmul(s, s, s, value=-1)
        return spmm(over_degrees, slope * (back @ outer), graph, transposed=True)
