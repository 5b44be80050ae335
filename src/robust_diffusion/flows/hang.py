"""HANG flow."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from robust_diffusion.checks import Width
from robust_diffusion.flows.base import State, Time
from robust_diffusion.flows.hamiltonian import HamiltonianFlow
from robust_diffusion.operators import EdgeValues, Graph, NodeSignal, spmm, symmetric_weights


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
        In the authors' experiments p is handed on, and a learned share of the initial state is
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
        """Velocity and force; of a narrowed state, the energy's gradient by what it sees."""
        if "turned" in graph.carried:
            turned, twice_hidden = graph.carried["turned"], graph.carried["twice_hidden"]
            moved = spmm(graph.carried["over_degrees"], z @ turned, graph)
            return self._gradient(moved + twice_hidden, graph.carried["over_degrees"], graph)
        over_degrees = self.edge_weights(z, graph)
        twice_hidden = self._twice_hidden(z, over_degrees, graph)
        return self._gradient(twice_hidden, over_degrees, graph) @ self._turned_inner()

    def narrowed(self, state: State, graph: Graph) -> tuple[State, Graph, Callable[[State], State]]:
        """The integral of the energy's gradient by [q, p] W_1, which is all that H sees.

        A state moves within the d directions of W_1 alone, out of 2 d.
        """
        over_degrees, turned = self.edge_weights(state, graph), self._turned_inner()
        graph = graph.carrying(
            over_degrees=over_degrees,
            twice_hidden=self._twice_hidden(state, over_degrees, graph),
            turned=2 * turned @ self.inner.weight.T,
        )
        start = state.new_zeros(state.size(0), self.channels)
        return start, graph, lambda end: torch.addmm(state, end, turned)

    def _turned_inner(self) -> Tensor:
        """W_1, its halves for q and p exchanged and the latter's sign changed."""
        by_q, by_p = self.inner.weight.chunk(2, 1)
        return torch.cat([by_p, -by_q], 1)

    def _twice_hidden(self, state: State, over_degrees: EdgeValues, graph: Graph) -> NodeSignal:
        return 2 * (spmm(over_degrees, state @ self.inner.weight.T, graph) + self.inner.bias)

    def _gradient(
        self, twice_hidden: NodeSignal, over_degrees: EdgeValues, graph: Graph
    ) -> NodeSignal:
        """DH / d([q, p] W_1), through both convolutions and back."""
        # tanh x = 2 s - 1 and its derivative 4 s (1 - s), with s the sigmoid of 2 x, for which
        # torch takes a fifth of the time of tanh.
        s, outer = torch.sigmoid(twice_hidden), self.outer.weight
        out = spmm(over_degrees, 2 * (s @ outer.T) - outer.sum(), graph) + self.outer.bias
        back = spmm(over_degrees, 4 * self.norm_gradient(out), graph, transposed=True)
        return spmm(over_degrees, (s - s.square()) * (back @ outer), graph, transposed=True)
