"""GNNGuard."""

from typing import Any

from torch import Tensor, nn

from robust_diffusion.models.gcn import gcn_convs
from robust_diffusion.models.guard import Gradient, Guard, Threshold
from robust_diffusion.models.stack import Apply, LayerStack
from robust_diffusion.operators import Graph


class GNNGuard(LayerStack):
    """Graph convolutions along edges that `Guard` has pruned and re-weighted before each layer.

    Reference: Zhang and Zitnik 2020, arXiv:2006.08149; as GRB configures it.

    Args:
        in_channels: Number of input features; `threshold` and `gradient` are as for `Guard`, all
            others as for `GCN`.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GNNGuard
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GNNGuard(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        *widths: Any,
        threshold: Threshold = 0.1,
        gradient: Gradient = "exact",
        **options: Any,
    ) -> None:
        super().__init__(*widths, **options)
        self.stack(gcn_convs(self.widths))
        self.guard = Guard(threshold=threshold, gradient=gradient)

    def make_adaptive(self) -> bool:
        """Let a gradient through to pruned edges; see `HasAdaptiveForm`."""
        self.guard, before = self.guard.adaptive(), self.guard
        return self.guard != before

    def along(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Each layer judges the edges that the one before has kept."""
        graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)

        def apply(conv: nn.Module, x: Tensor) -> Tensor:
            nonlocal graph
            graph, weighted = self.guard(x, graph)
            return conv(x, weighted)  # type: ignore[no-any-return]

        return apply
