"""BeltramiGuard."""

from collections.abc import Callable, Sequence

from robust_diffusion.checks import Count, Layers, Probability, Width, validated
from robust_diffusion.flows import Flow
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models.graph_pde import GraphPDE
from robust_diffusion.models.guard import Gradient, Guard, Threshold
from robust_diffusion.models.rewiring import Rewiring


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
        in_channels: Count,
        hidden_channels: Width | Sequence[Width] = 64,
        out_channels: int | None = None,
        *,
        flow: Callable[[int], Flow] | str = "beltrami",
        solver: Solver | None = None,
        threshold: Threshold = 0.1,
        reweight: bool = True,
        gradient: Gradient = "exact",
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
        rewiring: Rewiring | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            hidden_channels,
            out_channels,
            flow=flow,
            solver=solver,
            num_layers=num_layers,
            layer_norm=layer_norm,
            dropout=dropout,
            rewiring=rewiring,
            guard=Guard(threshold=threshold, reweight=reweight, gradient=gradient),
        )
