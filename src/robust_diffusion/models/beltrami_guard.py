"""BeltramiGuard."""

from typing import Any

from robust_diffusion.checks import validated
from robust_diffusion.models.graph_pde import GraphPDE
from robust_diffusion.models.guard import Gradient, Guard, Threshold


@validated("model")
class BeltramiGuard(GraphPDE):
    """Stacked Beltrami flows, GNNGuard's re-weighting before each of them.

    Where GNNGuard has a graph convolution, this has a layer that solves the Beltrami flow; the
    weights count in the softmaxes of its attention and of its modulation.

    Reference: table (BelGuard) and section "BeltramiGuard", arXiv:2209.07754.

    Args:
        in_channels: Number of input features; `threshold`, `reweight` and `gradient` are as for
            `Guard`, all others as for `GraphPDE`.

    Examples:
        >>> import torch
        >>> from robust_diffusion import BeltramiGuard
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> BeltramiGuard(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        *widths: Any,
        threshold: Threshold = 0.1,
        reweight: bool = True,
        gradient: Gradient = "exact",
        **options: Any,
    ) -> None:
        guard = Guard(threshold=threshold, reweight=reweight, gradient=gradient)
        super().__init__(*widths, guard=guard, **options)
