"""Graph attention network."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from robust_diffusion.checks import Width
from robust_diffusion.models.stack import Apply, GATConv, LayerStack
from robust_diffusion.operators import Graph


class GAT(LayerStack):
    """Graph attention network: additive attention, concatenated heads, one head in the last layer.

    Reference: Velickovic et al. 2018, arXiv:1710.10903; as GRB configures it.

    Args:
        in_channels: Number of input features; it and those not named here are as for `GCN`.
        hidden_channels: Width of every head of the hidden layers, or one width each.
        heads: Number of heads of the hidden layers, at least 1.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GAT
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GAT(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    activation = staticmethod(F.leaky_relu)

    def __init__(self, *widths: Any, heads: Width = 4, **options: Any) -> None:
        super().__init__(*widths, **options)
        wide = [self.widths[0], *(heads * width for width in self.widths[1:-1])]
        per_layer = [heads] * (len(wide) - 1) + [1]
        sizes = zip(wide, self.widths[1:], per_layer, strict=True)
        self.stack((GATConv(size, out, heads=count) for size, out, count in sizes), wide)

    def along(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Every layer sums along these edges."""
        graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        return lambda conv, x: conv(x, graph)
