"""DRAGON flow."""

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from annotated_types import Len
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.checks import Count, NonNegative, Positive, PositiveShare, Width, validated
from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.grand import Grand


@validated("flow")
class Dragon(Grand):
    r"""D-GRAND: GRAND whose time derivative mixes several orders.

    .. math:: \sum_j w_j D_t^{\alpha_j} Z = (A(Z) - I) Z, \quad w = \operatorname{softmax}(\theta)

    with Caputo derivatives and learned theta, initially 0. `solver` sets the equal steps; see
    `integrators.solve_distributed`. With a single order, it is FROND.

    Reference: Zhao et al. 2024, arXiv:2411.05274.

    Deviation: In the authors' code, the weights are unconstrained and scale the memory but not the
    present, and the derivatives are those of Riemann and Liouville.

    Args:
        channels: Width d of the node features; see `Grand` for all arguments not listed.
        order: alpha_j, each in (0, 1], at least one.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import Dragon
        >>> GraphPDE(5, out_channels=3, flow=Dragon).layers[0].flow.order
        (0.5, 1.0)
    """

    order: Any  # a tuple

    def __init__(
        self,
        channels: Width,
        *,
        order: Annotated[Sequence[PositiveShare], Len(1)] = (0.5, 1.0),
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
        self.order = tuple(order)
        self.theta = nn.Parameter(torch.zeros(len(self.order)))

    @property
    def order_weights(self) -> Float[Tensor, " j"]:
        """Weights w of the orders, which sum to 1."""
        return self.theta.softmax(0)
