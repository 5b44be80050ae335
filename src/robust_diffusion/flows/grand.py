"""GRAND/BLEND flow."""

from jaxtyping import Float
from torch import Tensor

from robust_diffusion.checks import Count, NonNegative, Positive, Width
from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.base import AttentionFlow
from robust_diffusion.operators import Graph, spmm


class Grand(AttentionFlow):
    """Heat flow along attention weights: dZ/dt = rate (A(Z) - I) Z.

    BLEND without positional encoding is the same flow, as the paper notes; `Blend` has one.

    Reference: def. (GRAND) and eq. (mtx_heat), arXiv:2209.07754; Chamberlain et al. 2021,
    arXiv:2106.10934.

    Args:
        channels: Width d of the node features; `t_end` to `attention` are those of `AttentionFlow`.
        rate: Speed of the diffusion, positive: 1 in the paper's equation. The authors' public
            code multiplies by the sigmoid of a parameter that it resets to 0, that is by 0.5.

    Raises:
        ConfigError: `rate` is not positive.

    Examples:
        >>> import torch
        >>> from robust_diffusion import Grand
        >>> from robust_diffusion.operators import Graph
        >>> graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
        >>> Grand(4)(torch.tensor(0.0), torch.rand(3, 4), graph).shape
        torch.Size([3, 4])
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
        rate: Positive = 1.0,
    ) -> None:
        super().__init__(
            channels,
            t_end=t_end,
            heads=heads,
            attention_channels=attention_channels,
            spectral_norm=spectral_norm,
            attention=attention,
        )
        self.rate = rate

    def edge_weights(self, z: Float[Tensor, "n d"], graph: Graph) -> Float[Tensor, " e"]:
        """Attention A(Z)."""
        return self.attention(z, graph)  # type: ignore[no-any-return]

    def forward(
        self, t: Float[Tensor, ""], z: Float[Tensor, "n d"], graph: Graph
    ) -> Float[Tensor, "n d"]:
        """Pull every node towards the attention-weighted mean of its neighbours."""
        return self.rate * (spmm(self.edge_weights(z, graph), z, graph) - z)
