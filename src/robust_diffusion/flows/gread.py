"""GREAD flow."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.checks import Count, NonNegative, Width
from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.base import AttentionFlow
from robust_diffusion.operators import Graph, spmm

Reaction = Literal["bspm", "fisher", "allen_cahn", "zeldovich"]


class GREAD(AttentionFlow):
    r"""Reaction and diffusion, each at a learned speed per channel.

    .. math:: \partial Z / \partial t = \alpha \odot (A(Z) - I) Z + \beta \odot r(Z)

    | `reaction` | r(Z) |
    |---|---|
    | `bspm` | A (I - A) Z, a sharpening of what is blurred |
    | `fisher` | Z (1 - Z) |
    | `allen_cahn` | Z (1 - Z^2) |
    | `zeldovich` | Z^2 (1 - Z) |

    alpha and beta are sigmoids of parameters that begin at 0.

    Reference: arXiv:2211.14208.

    Args:
        channels: Width d of the node features; `t_end` to `attention` are those of `AttentionFlow`.
        reaction: `bspm`, `fisher`, `allen_cahn` or `zeldovich`.

    Raises:
        ConfigError: An unknown reaction.

    Deviation:
        The authors attend once, to the initial state, or take the normalised adjacency; here A is
        the attention of the present state, as in the other flows.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GREAD, GraphPDE
        >>> x, edge_index = torch.rand(3, 5), torch.tensor([[0, 1], [1, 0]])
        >>> model = GraphPDE(5, 4, 2, flow=lambda width: GREAD(width, reaction="fisher"))
        >>> model(x, edge_index).shape
        torch.Size([3, 2])
    """

    def __init__(
        self,
        channels: Width,
        *,
        t_end: NonNegative = 1.0,
        heads: Count = 4,
        attention_channels: Width = 64,
        spectral_norm: bool = True,
        attention: AttentionKind = "trained",
        reaction: Reaction = "bspm",
    ) -> None:
        super().__init__(
            channels,
            t_end=t_end,
            heads=heads,
            attention_channels=attention_channels,
            spectral_norm=spectral_norm,
            attention=attention,
        )
        self.reaction = reaction
        self.raw_diffusion_rate = nn.Parameter(torch.zeros(channels))
        self.raw_reaction_rate = nn.Parameter(torch.zeros(channels))

    def edge_weights(self, z: Float[Tensor, "n d"], graph: Graph) -> Float[Tensor, " e"]:
        """Attention A(Z)."""
        return self.attention(z, graph)  # type: ignore[no-any-return]

    def forward(
        self, t: Float[Tensor, ""], z: Float[Tensor, "n d"], graph: Graph
    ) -> Float[Tensor, "n d"]:
        """Diffuse, and react."""
        attention = self.edge_weights(z, graph)
        diffusion = spmm(attention, z, graph) - z
        if self.reaction == "bspm":
            reaction = -spmm(attention, diffusion, graph)
        elif self.reaction == "fisher":
            reaction = z * (1 - z)
        elif self.reaction == "allen_cahn":
            reaction = z * (1 - z.square())
        else:
            reaction = z.square() * (1 - z)
        rates = self.raw_diffusion_rate.sigmoid(), self.raw_reaction_rate.sigmoid()
        return rates[0] * diffusion + rates[1] * reaction
