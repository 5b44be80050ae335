"""Heat+ flow."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.checks import NonNegative, Positive, Width, validated
from robust_diffusion.flows.base import Time
from robust_diffusion.flows.heat import Heat, HeatWeights
from robust_diffusion.operators import Graph, NodeSignal


@validated("flow")
class HeatPlus(Heat):
    """Heat diffusion at a learned speed: dZ/dt = kappa (A - I) Z, one kappa > 0 for all edges.

    kappa is the softplus of a parameter, so that it stays positive.

    Reference: "Heat+", table (heat), arXiv:2209.07754.

    Args:
        channels: Width d of the node features; see `Heat` for all arguments not listed.
        diffusivity: kappa before training, positive.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import HeatPlus
        >>> round(GraphPDE(5, out_channels=3, flow=HeatPlus).layers[0].flow.diffusivity.item(), 3)
        1.0
    """

    def __init__(
        self,
        channels: Width,
        *,
        diffusivity: Positive = 1.0,
        weights: HeatWeights = "uniform",
        t_end: NonNegative = 1.0,
    ) -> None:
        super().__init__(channels, weights=weights, t_end=t_end)
        # The inverse of the softplus, in the form that does not overflow.
        self.raw_diffusivity = nn.Parameter(
            torch.tensor(diffusivity + math.log(-math.expm1(-diffusivity)))
        )

    @property
    def diffusivity(self) -> Float[Tensor, ""]:
        """kappa, positive."""
        return F.softplus(self.raw_diffusivity)

    def forward(self, t: Time, z: NodeSignal, graph: Graph) -> NodeSignal:
        """Pull every node towards the weighted mean of its neighbours, at the learned speed."""
        return self.diffusivity * super().forward(t, z, graph)
