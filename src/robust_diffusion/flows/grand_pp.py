"""GRAND++ flow."""

from jaxtyping import Float
from torch import Tensor

from robust_diffusion.checks import Count, NonNegative, Positive, Width
from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.base import AttentionFlow
from robust_diffusion.operators import Graph, spmm


class GrandPP(AttentionFlow):
    r"""GRAND with a source that keeps nodes from becoming equal.

    .. math:: \partial Z / \partial t = (A(Z) - I) Z + s (Z(0) - \bar{Z}(0))

    The source is each node's initial features less their mean over all nodes, so that it adds
    nothing in total.

    Reference: Thorpe et al. 2022 (ICLR, OpenReview EMxu-dzvJk).

    Args:
        channels: Width d of the node features; `t_end` to `attention` are those of `AttentionFlow`.
        source: s, the source's strength, positive: 1 in the paper's equation.

    Raises:
        ConfigError: `source` is not positive.

    Deviation:
        In the paper the source acts at the labelled nodes. A model of this package is given no
        labels, so it acts at all nodes.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GrandPP, GraphPDE
        >>> x, edge_index = torch.rand(3, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GraphPDE(5, 4, 2, flow=GrandPP)(x, edge_index).shape
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
        source: Positive = 1.0,
    ) -> None:
        super().__init__(
            channels,
            t_end=t_end,
            heads=heads,
            attention_channels=attention_channels,
            spectral_norm=spectral_norm,
            attention=attention,
        )
        self.source = source

    def prepare(self, z: Float[Tensor, "n d"], graph: Graph) -> Graph:
        """Graph that carries the source."""
        return graph.carrying(source=self.source * (z - z.mean(0)))

    def edge_weights(self, z: Float[Tensor, "n d"], graph: Graph) -> Float[Tensor, " e"]:
        """Attention A(Z)."""
        return self.attention(z, graph)  # type: ignore[no-any-return]

    def forward(
        self, t: Float[Tensor, ""], z: Float[Tensor, "n d"], graph: Graph
    ) -> Float[Tensor, "n d"]:
        """Pull every node towards the mean of its neighbours, and away from that of all."""
        return spmm(self.edge_weights(z, graph), z, graph) - z + graph.carried["source"]
