"""HANG-quad flow."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.checks import Width
from robust_diffusion.flows.hamiltonian import HamiltonianFlow
from robust_diffusion.operators import (
    EdgeValues,
    Graph,
    NodeSignal,
    edge_softmax,
    gather_dst,
    gather_src,
    spmm,
    symmetric_weights,
)

SLOPE = 0.2
"""Slope of the leaky ReLU below 0, as in GAT."""


class HangQuad(HamiltonianFlow):
    r"""Hamiltonian flow of an energy that is quadratic in the momenta.

    .. math:: H(q, p) = \tfrac{1}{n} \mathrm{tr}(p^\top \hat{A}^2 p) + \lVert A(q) q W + b \rVert

    with the normalised adjacency, and A(q) the attention of one head of a GAT. At `scale=node`,
    1 / n is 1 / 2 and the length half its square; see `Hang`.

    Reference: H_quad of HANG-quad, arXiv:2310.06396; GAT, arXiv:1710.10903. Arguments as
    `HamiltonianFlow`.

    Deviation:
        The authors' code takes q' from dH/dq and p' from dH/dp, signs changed, under which H is
        not conserved. Here both flows are those of Hamilton's equations.

    Examples:
        >>> from robust_diffusion import GraphPDE, HangQuad
        >>> GraphPDE(5, out_channels=3, flow=HangQuad).layers[0].flow.scale
        'node'
    """

    def __init__(self, channels: Width, **options: Any) -> None:
        super().__init__(channels, **options)
        self.linear = nn.Linear(channels, channels)
        nn.init.xavier_uniform_(self.linear.weight)
        self.ends = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2, channels)))

    def edge_weights(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Attention A(q)."""
        return self._attention(z @ self.linear.weight.T, graph)

    def _attention(self, projected: Tensor, graph: Graph) -> Tensor:
        at_dst, at_src = (projected @ self.ends.T).chunk(2, 1)
        scores = F.leaky_relu(gather_dst(at_dst, graph) + gather_src(at_src, graph), SLOPE)
        return edge_softmax(scores, graph, twice_differentiable=True).squeeze(1)

    def energy(self, q: NodeSignal, p: NodeSignal, graph: Graph) -> Float[Tensor, ""]:
        """Kinetic energy of momenta, and the length of the attended positions."""
        weights = symmetric_weights(graph)
        kinetic = (p * spmm(weights, spmm(weights, p, graph), graph)).sum()
        projected = q @ self.linear.weight.T
        attended = spmm(self._attention(projected, graph), projected, graph) + self.linear.bias
        share = 2 if self.scale == "node" else graph.num_nodes
        return kinetic / share + self.norm(attended)
