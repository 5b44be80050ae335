"""GREAD flow."""

from typing import Literal

import torch
from torch import nn

from robust_diffusion.checks import Count, NonNegative, Width, validated
from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.base import AttentionFlow, Time
from robust_diffusion.operators import Graph, NodeSignal, spmm

Reaction = Literal["bspm", "fisher", "allen_cahn", "zeldovich"]


@validated("flow")
class GREAD(AttentionFlow):
    r"""Reaction and diffusion, each at a learned speed per channel.

    .. math:: \partial Z / \partial t = \alpha \odot (A(Z) - I) Z + \beta \odot r(Z)

    | `reaction` | r(Z) |
    |---|---|
    | `bspm` | A (I - A) Z, a sharpening of what is blurred |
    | `fisher` | Z (1 - Z) |
    | `allen_cahn` | Z (1 - Z^2) |
    | `zeldovich` | Z^2 (1 - Z) |

    alpha and beta are sigmoids of parameters that start at 0.

    Reference: arXiv:2211.14208.

    Args:
        channels: Width d of the node features; see `AttentionFlow` for all arguments not listed.
        reaction: `bspm`, `fisher`, `allen_cahn` or `zeldovich`.

    Deviation:
        The authors compute attention once, from the initial state, or use the normalised adjacency.
        Here, A is the attention of the current state, as in the other flows.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import GREAD
        >>> GraphPDE(5, out_channels=3, flow=GREAD).layers[0].flow.reaction
        'bspm'
    """

    def __init__(
        self,
        channels: Width,
        *,
        reaction: Reaction = "bspm",
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
        self.reaction = reaction
        self.raw_diffusion_rate = nn.Parameter(torch.zeros(channels))
        self.raw_reaction_rate = nn.Parameter(torch.zeros(channels))

    def forward(self, t: Time, z: NodeSignal, graph: Graph) -> NodeSignal:
        """Compute diffusion and reaction."""
        attention = self.edge_weights(z, graph)
        diffusion = spmm(attention, z, graph) - z
        rates = self.raw_diffusion_rate.sigmoid(), self.raw_reaction_rate.sigmoid()
        if self.reaction == "bspm":
            # The sign is applied to the rate, which only has one number per channel.
            rates, reaction = (rates[0], -rates[1]), spmm(attention, diffusion, graph)
        elif self.reaction == "fisher":
            reaction = z * (1 - z)
        elif self.reaction == "allen_cahn":
            reaction = z * (1 - z.square())
        else:
            reaction = z.square() * (1 - z)
        return rates[0] * diffusion + rates[1] * reaction
