"""GRAND/BLEND flow."""

from robust_diffusion.checks import Count, NonNegative, Positive, Width, validated
from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.base import AttentionFlow, Time, is_number
from robust_diffusion.operators import Graph, NodeSignal, spmm


@validated("flow")
class Grand(AttentionFlow):
    """Heat flow along attention weights: dZ/dt = rate (A(Z) - I) Z.

    BLEND without positional encoding is the same flow, as the paper notes; `Blend` has positions.

    Reference: def. (GRAND) and eq. (mtx_heat), arXiv:2209.07754; Chamberlain et al. 2021,
    arXiv:2106.10934.

    Args:
        channels: Width d of the node features; see `AttentionFlow` for all arguments not listed.
        rate: Speed of the diffusion, positive: 1 in the paper's equation. The authors' public
            code multiplies by the sigmoid of a parameter that it resets to 0, which is 0.5.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import Grand
        >>> GraphPDE(5, out_channels=3, flow=Grand).layers[0].flow.rate
        1.0
    """

    def __init__(
        self,
        channels: Width,
        *,
        rate: Positive = 1.0,
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
        self.rate = rate

    def forward(self, t: Time, z: NodeSignal, graph: Graph) -> NodeSignal:
        """Pull every node towards the attention-weighted mean of its neighbours."""
        change = spmm(self.edge_weights(z, graph), z, graph) - z
        return change if is_number(self.rate, 1) else self.rate * change
