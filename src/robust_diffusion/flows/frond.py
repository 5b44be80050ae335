"""FROND flow."""

from robust_diffusion.checks import Count, NonNegative, Positive, PositiveShare, Width, validated
from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.grand import Grand


@validated("flow")
class Frond(Grand):
    r"""F-GRAND: GRAND of fractional order in time, whose derivative depends on the whole past.

    .. math:: D_t^\alpha Z = (A(Z) - I) Z, \quad 0 < \alpha \le 1

    with the Caputo derivative. `solver` sets the equal steps of the fractional predictor; see
    `integrators.solve_fractional`. At alpha = 1, it is GRAND.

    Reference: arXiv:2404.17099.

    Args:
        channels: Width d of the node features; see `Grand` for all arguments not listed.
        order: alpha, in (0, 1].

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import Frond
        >>> GraphPDE(5, out_channels=3, flow=Frond).layers[0].flow.order
        0.85
    """

    def __init__(
        self,
        channels: Width,
        *,
        order: PositiveShare = 0.85,
        rate: Positive = 1.0,
        heads: Count = 4,
        attention_channels: Width = 64,
        lipschitz: bool = True,
        attention: AttentionKind = "trained",
        t_end: NonNegative = 1.0,
    ) -> None:
        super().__init__(
            channels,
            rate=rate,
            heads=heads,
            attention_channels=attention_channels,
            lipschitz=lipschitz,
            attention=attention,
            t_end=t_end,
        )
        self.order = order
