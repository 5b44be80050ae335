"""HANG-quad flow."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.checks import NonNegative, Width, validated
from robust_diffusion.flows.base import State, Time
from robust_diffusion.flows.hang import HamiltonianFlow, Scale
from robust_diffusion.operators import (
    EdgeValues,
    Graph,
    NodeSignal,
    edge_dot,
    gather_dst,
    gather_src,
    row_softmax,
    row_sum,
    spmm,
    symmetric_weights,
)

SLOPE = 0.2
"""Slope of the leaky ReLU below 0, as in GAT."""


@validated("flow")
class HangQuad(HamiltonianFlow):
    r"""Hamiltonian flow of an energy that is quadratic in the momenta.

    .. math:: H(q, p) = \tfrac{1}{n} \mathrm{tr}(p^\top \hat{A}^2 p) + \lVert A(q) q W + b \rVert

    with the normalised adjacency, and A(q) the attention of one head of a GAT. For `scale=node`,
    1 / n is replaced by 1 / 2 and the norm by half its square; see `Hang`.

    Reference: H_quad of HANG-quad, arXiv:2310.06396; GAT, arXiv:1710.10903. For the arguments see
    `HamiltonianFlow`.

    Deviation:
        The authors' code computes q' from dH/dq and p' from dH/dp, with changed signs, under which
        H is not conserved. Here, both follow Hamilton's equations.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import HangQuad
        >>> GraphPDE(5, out_channels=3, flow=HangQuad).layers[0].flow.scale
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
        self.linear = nn.Linear(channels, channels)
        nn.init.xavier_uniform_(self.linear.weight)
        self.ends = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2, channels)))

    def edge_weights(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Return the attention A(q)."""
        return row_softmax(self._scores(z @ self.linear.weight.T, graph), graph).squeeze(1)

    def _scores(self, projected: NodeSignal, graph: Graph) -> Float[Tensor, "e 1"]:
        at_dst, at_src = (projected @ self.ends.T).chunk(2, 1)
        return F.leaky_relu(gather_dst(at_dst, graph) + gather_src(at_src, graph), SLOPE)

    def forward(self, t: Time, z: State, graph: Graph) -> State:
        """Compute velocity and force, the gradients of the kinetic energy and of the norm."""
        q, p = z.chunk(2, 1)
        return torch.cat([self._velocity(p.contiguous(), graph), self._force(q, graph)], 1)

    def _velocity(self, p: NodeSignal, graph: Graph) -> NodeSignal:
        weights = symmetric_weights(graph)
        share = weights / (2 if self.scale == "node" else graph.num_nodes)
        if graph.weight is None and graph.edges.both_ways:  # then the matrix is symmetric
            return spmm(2 * share, spmm(weights, p, graph), graph)
        there = spmm(share, spmm(weights, p, graph), graph)
        back = spmm(weights, p, graph, transposed=True)
        return there + spmm(share, back, graph, transposed=True)

    def _force(self, q: NodeSignal, graph: Graph) -> NodeSignal:
        """Compute the gradient of -|A P + b|, P = q W, by q, through P and the attention."""
        projected = q @ self.linear.weight.T
        scores = self._scores(projected, graph)
        attention = row_softmax(scores, graph).squeeze(1)
        pull = self.norm_gradient(spmm(attention, projected, graph) + self.linear.bias)
        along = attention * edge_dot(pull[:, None], projected[:, None], graph).squeeze(1)
        by_score = along - attention * gather_dst(row_sum(along, graph), graph)
        by_score = torch.where(scores.squeeze(1) > 0, by_score, SLOPE * by_score)
        at_src = by_score.new_zeros(graph.num_nodes).index_add(0, graph.src, by_score)
        by_ends = torch.stack([row_sum(by_score, graph), at_src], 1)
        by_projected = spmm(attention, pull, graph, transposed=True) + by_ends @ self.ends
        return by_projected @ -self.linear.weight
