"""p-Laplacian flow."""

from typing import Annotated, Literal

from annotated_types import Ge
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.checks import Count, NonNegative, Positive, Width
from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.base import ModulatedFlow
from robust_diffusion.operators import (
    GradientNorm,
    Graph,
    gather_dst,
    gather_src,
    spmm,
)

ModulationKind = Literal["softmax", "power", "power_without_row_sum"]


class PLaplacian(ModulatedFlow):
    r"""p-Laplacian diffusion: edges weigh by the gradient norm to the power p - 2.

    .. math:: \partial Z / \partial t = (A(Z) \odot B(Z) - \Psi(Z)) Z, \quad
        B(u, v) = \mathrm{softmax}_v (g_u^{p-2} + g_v^{p-2})

    p = 1 is mean curvature. At p = 2 the powers are 1: under `softmax` B is uniform, which is
    GRAND at 1 / (number of edges that arrive at u) of its speed; under `power` it is GRAND at
    twice its speed.

    Reference: eq. (pLap), arXiv:2209.07754, discretised as its eq. (mtx_mean).

    Args:
        channels: Width d of the node features.
        p: At least 1; the paper prints 3 and 4.
        modulation: `softmax` as the paper does for p = 1; `power` leaves the softmax out,
            B = g_u^{p-2} + g_v^{p-2}; `power_without_row_sum` is the authors' public code, which
            also subtracts Z instead of Psi Z, so that a constant signal does not stay constant.
        t_end: End of the integration period; it and all that follow are those of `ModulatedFlow`.

    Raises:
        ConfigError: A value out of range.

    Examples:
        >>> import torch
        >>> from robust_diffusion import PLaplacian
        >>> from robust_diffusion.operators import Graph
        >>> graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
        >>> PLaplacian(4, p=4.0)(torch.tensor(0.0), torch.rand(3, 4), graph).shape
        torch.Size([3, 4])
    """

    def __init__(
        self,
        channels: Width,
        *,
        p: Annotated[float, Ge(1)] = 3.0,
        modulation: ModulationKind = "softmax",
        t_end: NonNegative = 1.0,
        heads: Count = 4,
        attention_channels: Width = 64,
        spectral_norm: bool = True,
        attention: AttentionKind = "trained",
        gradient_norm: GradientNorm = "edges",
        gradient_floor: Positive = 0.01,
        gradient_ceiling: Positive | None = None,
    ) -> None:
        super().__init__(
            channels,
            t_end=t_end,
            heads=heads,
            attention_channels=attention_channels,
            spectral_norm=spectral_norm,
            attention=attention,
            gradient_norm=gradient_norm,
            gradient_floor=gradient_floor,
            gradient_ceiling=gradient_ceiling,
        )
        self.p = p
        self.modulation = modulation

    def modulation_scores(
        self, inverse_norm: Float[Tensor, " n"], graph: Graph
    ) -> Float[Tensor, " e"]:
        """g_v^{p-2}; under `power`, where nothing cancels, g_u^{p-2} + g_v^{p-2}."""
        power = inverse_norm.pow(2 - self.p)
        if self.modulation == "softmax":
            return gather_src(power, graph)
        return gather_dst(power, graph) + gather_src(power, graph)

    @property
    def modulation_exponents(self) -> tuple[float, float] | None:
        """Those of the scores above, of which there is a softmax under `softmax` only."""
        return (0.0, self.p - 2) if self.modulation == "softmax" else None

    def edge_modulation(
        self, z: Float[Tensor, "n d"], attention: Float[Tensor, " e"], graph: Graph
    ) -> Float[Tensor, " e"]:
        """B, the scores themselves unless there is a softmax."""
        if self.modulation == "softmax":
            return super().edge_modulation(z, attention, graph)
        return self.modulation_scores(self.norm(z, attention, graph).reciprocal(), graph)

    def forward(
        self, t: Float[Tensor, ""], z: Float[Tensor, "n d"], graph: Graph
    ) -> Float[Tensor, "n d"]:
        """Diffuse along A * B."""
        if self.modulation != "power_without_row_sum":
            return super().forward(t, z, graph)
        return spmm(self.edge_weights(z, graph), z, graph) - z
