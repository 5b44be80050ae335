"""Attention diffusion with a learned rate and a learned modulation of each edge."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.checks import Count, NonNegative, Positive, Width, validated
from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.base import AttentionFlow, Time
from robust_diffusion.operators import (
    EdgeValues,
    Graph,
    NodeSignal,
    edge_squared_distance,
    gather_dst,
    gather_src,
    row_sum,
    spmm,
)


@validated("flow")
class Learned(AttentionFlow):
    r"""Attention diffusion with a learned rate and a learned modulation of each edge.

    .. math:: \partial z_u / \partial t = 2 \kappa \sum_v A_{uv} m_{uv} (z_v - z_u), \quad
        m_{uv} = \sigma(w \cdot \tanh(V s_{uv} + b) + c)

    with s_uv = (log(1 + deg u), log(1 + deg v), log(1 + |z_v - z_u|^2 / d)). Both w and c start at
    0, so that m is 1/2 on every edge and the flow is GRAND at rate kappa; kappa > 0 is the softplus
    of a parameter. The learned modulation depends on the training: clean nodes do not require
    robustness, but injected ones do (`InjectionAdversary`). The modulation can close edges between
    dissimilar features, or slow down a node with many edges, and at most doubles the rate.

    Reference: of this project; a learned edge-stopping function in the manner of Perona and Malik
    1990, doi:10.1109/34.56205.

    Args:
        channels: Width d of the node features; see `AttentionFlow` for all arguments not listed.
        rate: kappa before training, positive.
        modulation_channels: Width of V, at least 1.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import Learned
        >>> GraphPDE(5, out_channels=3, flow=Learned).layers[0].flow.hidden
        Linear(in_features=3, out_features=8, bias=True)
    """

    def __init__(
        self,
        channels: Width,
        *,
        rate: Positive = 1.0,
        modulation_channels: Width = 8,
        heads: Count = 4,
        attention_channels: Width = 64,
        lipschitz: bool = True,
        attention: AttentionKind = "trained",
        t_end: NonNegative = 1.0,
    ) -> None:
        super().__init__(
            channels,
            heads=heads,
            attention_channels=attention_channels,
            lipschitz=lipschitz,
            attention=attention,
            t_end=t_end,
        )
        # The inverse of the softplus, in the form that does not overflow.
        self.raw_rate = nn.Parameter(torch.tensor(rate + math.log(-math.expm1(-rate))))
        self.hidden = nn.Linear(3, modulation_channels)
        self.score = nn.Linear(modulation_channels, 1)
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.score.bias)

    @property
    def rate(self) -> Float[Tensor, ""]:
        """kappa, positive."""
        return F.softplus(self.raw_rate)

    def modulation(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Compute the modulation m of every edge, in (0, 1)."""
        degree = row_sum(graph.full_weight, graph).log1p()
        distance = (edge_squared_distance(z, graph) / z.size(1)).log1p()
        ends = gather_dst(degree, graph), gather_src(degree, graph)
        hidden = self.hidden(torch.stack([*ends, distance], 1)).tanh()
        return self.score(hidden).squeeze(1).sigmoid()  # type: ignore[no-any-return]

    def edge_weights(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Return attention times modulation."""
        return self.attention(z, graph) * self.modulation(z, graph)  # type: ignore[no-any-return]

    def forward(self, t: Time, z: NodeSignal, graph: Graph) -> NodeSignal:
        """Diffuse along attention times modulation, which preserves a constant signal."""
        carried = self.edge_weights(z, graph)
        return 2 * self.rate * (spmm(carried, z, graph) - row_sum(carried, graph)[:, None] * z)
