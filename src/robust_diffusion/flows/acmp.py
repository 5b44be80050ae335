"""Allen-Cahn message passing flow."""

from typing import Annotated

import torch
from annotated_types import Gt, Lt
from torch import nn

from robust_diffusion.checks import Count, NonNegative, Width, validated
from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.base import AttentionFlow, Time
from robust_diffusion.operators import EdgeValues, Graph, NodeSignal, row_sum, spmm


@validated("flow")
class ACMP(AttentionFlow):
    r"""Particles that attract or repel each other, in a double well.

    .. math:: \partial z_u / \partial t = \alpha \odot \sum_v (a_{uv}(Z) - \beta w_{uv}) (z_v - z_u)
        + \delta \odot z_u \odot (1 - z_u \odot z_u)

    a is the attention and w the edge weight, 1 for a plain edge, so two nodes repel each other if a
    is below beta. alpha and delta are learned per channel, and positive through a sigmoid.

    Reference: arXiv:2206.05437.

    Args:
        channels: Width d of the node features; see `AttentionFlow` for all arguments not listed.
        repulsion: beta, at least 0.
        well: delta before training, in (0, 1): the sigmoid of -10 in the authors' code. The force
            grows with the cube of the state, so larger values need more steps.

    Deviation:
        The authors' code sums (a - beta) z_v - z_u, which is only the equation for beta = 0.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import ACMP
        >>> GraphPDE(5, out_channels=3, flow=ACMP).layers[0].flow.repulsion
        0.05
    """

    def __init__(
        self,
        channels: Width,
        *,
        repulsion: NonNegative = 0.05,
        well: Annotated[float, Gt(0), Lt(1)] = 4.5e-5,
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
        self.repulsion = repulsion
        start = torch.tensor(well).logit()
        self.raw_attraction = nn.Parameter(torch.zeros(channels))
        self.raw_well = nn.Parameter(start.repeat(channels))

    def edge_weights(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Return A - beta w, which is below 0 if two nodes repel each other."""
        return self.attention(z, graph) - self.repulsion * graph.full_weight  # type: ignore[no-any-return]

    def forward(self, t: Time, z: NodeSignal, graph: Graph) -> NodeSignal:
        """Compute attraction or repulsion along the edges, and the force of the double well."""
        force = self.edge_weights(z, graph)
        messages = spmm(force, z, graph) - row_sum(force, graph)[:, None] * z
        well = z * (1 - z.square())
        return self.raw_attraction.sigmoid() * messages + self.raw_well.sigmoid() * well
