"""Heat+ flow."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.checks import NonNegative, Positive, Width
from robust_diffusion.flows.heat import Heat, HeatWeights
from robust_diffusion.operators import Graph


class HeatPlus(Heat):
    """Heat diffusion of a learned speed: dZ/dt = kappa (A - I) Z, one kappa > 0 for all edges.

    kappa is the softplus of a parameter, so that it stays positive.

    Reference: "Heat+", table (heat), arXiv:2209.07754.

    Args:
        channels: Width d of the node features.
        t_end: End of the integration period [0, t_end].
        weights: `uniform` or `frozen_attention`; see `Heat`.
        diffusivity: kappa before training, positive.

    Raises:
        ConfigError: Unknown weights, or a diffusivity that is not positive.

    Examples:
        >>> import torch
        >>> from robust_diffusion import HeatPlus
        >>> from robust_diffusion.operators import Graph
        >>> graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
        >>> HeatPlus(4)(torch.tensor(0.0), torch.rand(3, 4), graph).shape
        torch.Size([3, 4])
    """

    def __init__(
        self,
        channels: Width,
        *,
        t_end: NonNegative = 1.0,
        weights: HeatWeights = "uniform",
        diffusivity: Positive = 1.0,
    ) -> None:
        super().__init__(channels, t_end=t_end, weights=weights)
        # The inverse of the softplus, in the form that does not overflow.
        self.raw_diffusivity = nn.Parameter(
            torch.tensor(diffusivity + math.log(-math.expm1(-diffusivity)))
        )

    @property
    def diffusivity(self) -> Float[Tensor, ""]:
        """kappa, positive."""
        return F.softplus(self.raw_diffusivity)

    def forward(
        self, t: Float[Tensor, ""], z: Float[Tensor, "n d"], graph: Graph
    ) -> Float[Tensor, "n d"]:
        """Pull every node towards the weighted mean of its neighbours, at the learned speed."""
        return self.diffusivity * super().forward(t, z, graph)
