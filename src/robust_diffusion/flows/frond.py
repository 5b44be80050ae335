"""FROND flow."""

from robust_diffusion.checks import Count, NonNegative, Positive, PositiveShare, Width
from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.grand import Grand


class Frond(Grand):
    r"""GRAND of fractional order in time, whose derivative remembers all of its past: F-GRAND.

    .. math:: D_t^\alpha Z = (A(Z) - I) Z, \quad 0 < \alpha \le 1

    with the derivative of Caputo. `solver` sets the equal steps that the fractional predictor
    takes; see `integrators.fractional`. At alpha = 1 it is GRAND.

    Reference: arXiv:2404.17099.

    Args:
        channels: Width d of the node features; `t_end` to `rate` are those of `Grand`.
        order: alpha, in (0, 1].

    Raises:
        ConfigError: `order` is out of range.

    Examples:
        >>> import torch
        >>> from robust_diffusion import Frond, GraphPDE
        >>> x, edge_index = torch.rand(3, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GraphPDE(5, 4, 2, flow=lambda width: Frond(width, order=0.5))(x, edge_index).shape
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
        rate: Positive = 1.0,
        order: PositiveShare = 0.85,
    ) -> None:
        super().__init__(
            channels,
            t_end=t_end,
            heads=heads,
            attention_channels=attention_channels,
            spectral_norm=spectral_norm,
            attention=attention,
            rate=rate,
        )
        self.order = order
