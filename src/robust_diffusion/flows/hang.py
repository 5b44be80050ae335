"""HANG flow."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.checks import Width
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

    def energy(self, q: NodeSignal, p: NodeSignal, graph: Graph) -> Float[Tensor, ""]:
        """Length of the output of two graph convolutions."""
        weights = self.edge_weights(q, graph)
        hidden = spmm(weights, torch.cat([q, p], 1) @ self.inner.weight.T, graph)
        hidden = torch.tanh(hidden + self.inner.bias)
        return self.norm(spmm(weights, hidden @ self.outer.weight.T, graph) + self.outer.bias)
