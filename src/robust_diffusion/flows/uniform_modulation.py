"""Diffusion with a uniform edge modulation, the control of the curvature flows."""

from jaxtyping import Float
from torch import Tensor

from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.base import ModulatedFlow
from robust_diffusion.operators import Graph


class UniformModulation(ModulatedFlow):
    r"""Attention over the degree: B(u, v) = 1 / deg(u), whatever the curvature.

    .. math:: \partial Z / \partial t = (A(Z) \odot B - \Psi(Z)) Z

    deg(u) is the sum of the weights arriving at u, self-loop included. This is Beltrami or mean
    curvature with equal scores; what they do beyond it is due to the gradient norm.

    Args:
        channels: Width d of the node features.
        t_end: End of the integration period [0, t_end].
        heads: Number of attention heads, averaged.
        attention_channels: Width of all heads together; a multiple of `heads`.
        spectral_norm: Divide W_K and W_Q by their largest singular value.
        attention: `trained` or `resampled`.
    """

    def __init__(
        self,
        channels: int,
        *,
        t_end: float = 1.0,
        heads: int = 4,
        attention_channels: int = 64,
        spectral_norm: bool = True,
        attention: AttentionKind = "trained",
    ) -> None:
        super().__init__(
            channels,
            t_end=t_end,
            heads=heads,
            attention_channels=attention_channels,
            spectral_norm=spectral_norm,
            attention=attention,
        )

    def modulation_scores(
        self, inverse_norm: Float[Tensor, " n"], graph: Graph
    ) -> Float[Tensor, " e"]:
        """1 on every edge."""
        return inverse_norm.new_ones(graph.num_edges)

    @property
    def modulation_exponents(self) -> tuple[float, float]:
        """Those of the scores above."""
        return 0.0, 0.0
