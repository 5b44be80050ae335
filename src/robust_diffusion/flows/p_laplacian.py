"""p-Laplacian flow."""

from typing import Annotated, Literal

from annotated_types import Ge

from robust_diffusion.checks import Count, NonNegative, Positive, Width, validated
from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.base import ModulatedFlow, PowerModulated, Time
from robust_diffusion.operators import (
    EdgeValues,
    GradientNorm,
    Graph,
    NodeSignal,
    gather_dst,
    gather_src,
    spmm,
)

ModulationKind = Literal["softmax", "power", "power_without_row_sum"]


@validated("flow")
class PLaplacian(PowerModulated):
    r"""p-Laplacian diffusion, with edges weighted by the gradient norm to the power p - 2.

    .. math:: \partial Z / \partial t = (A(Z) \odot B(Z) - \Psi(Z)) Z, \quad
        B(u, v) = \mathrm{softmax}_v (g_u^{p-2} + g_v^{p-2})

    p = 1 is mean curvature. At p = 2 the powers are 1: under `softmax` B is uniform, which is
    GRAND at 1 / (number of edges that arrive at u) of its speed; under `power` it is GRAND at
    twice its speed.

    Reference: eq. (pLap), arXiv:2209.07754, discretised as its eq. (mtx_mean).

    Args:
        channels: Width d of the node features; see `ModulatedFlow` for all arguments not listed.
        p: At least 1; the paper prints 3 and 4.
        modulation: `softmax` as in the paper for p = 1; `power` without the softmax,
            B = g_u^{p-2} + g_v^{p-2}; `power_without_row_sum` as in the authors' public code, which
            also subtracts Z instead of Psi Z, so that a constant signal does not stay constant.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import PLaplacian
        >>> GraphPDE(5, out_channels=3, flow=PLaplacian).layers[0].flow.p
        3.0
    """

    def __init__(
        self,
        channels: Width,
        *,
        p: Annotated[float, Ge(1)] = 3.0,
        modulation: ModulationKind = "softmax",
        gradient_norm: GradientNorm = "edges",
        gradient_floor: Positive = 0.01,
        gradient_ceiling: Positive | None = None,
        heads: Count = 4,
        attention_channels: Width = 64,
        lipschitz: bool = True,
        attention: AttentionKind = "trained",
        t_end: NonNegative = 1.0,
    ) -> None:
        super().__init__(
            channels,
            gradient_norm=gradient_norm,
            gradient_floor=gradient_floor,
            gradient_ceiling=gradient_ceiling,
            heads=heads,
            attention_channels=attention_channels,
            lipschitz=lipschitz,
            attention=attention,
            t_end=t_end,
        )
        self.p = p
        self.exponents = (0.0, p - 2)  # read under `softmax`
        self.modulation = modulation

    def edge_modulation(self, z: NodeSignal, attention: EdgeValues, graph: Graph) -> EdgeValues:
        """Return B: g_u^{p-2} + g_v^{p-2} unless there is a softmax, in which no term cancels."""
        if self.modulation == "softmax":
            return super().edge_modulation(z, attention, graph)
        power = self.norm(z, attention, graph).reciprocal().pow(2 - self.p)
        return gather_dst(power, graph) + gather_src(power, graph)

    def forward(self, t: Time, z: NodeSignal, graph: Graph) -> NodeSignal:
        """Diffuse along A * B, fused under `softmax`."""
        if self.modulation == "softmax":
            return self.fused(t, z, graph, PLaplacian)
        if self.modulation == "power":
            return ModulatedFlow.forward(self, t, z, graph)
        return spmm(self.edge_weights(z, graph), z, graph) - z
