"""Graph attention network."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from robust_diffusion.checks import Count, Layers, Probability, Width
from robust_diffusion.models.convs import GATConv
from robust_diffusion.models.stack import Apply, LayerStack
from robust_diffusion.models.widths import layer_widths
from robust_diffusion.operators import Graph


class GAT(LayerStack):
    """Graph attention network: additive attention, several heads side by side, one in the end.

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

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        out_channels: Count,
        *,
        num_layers: Layers = 3,
        heads: Width = 4,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        wide = [in_channels, *(heads * width for width in widths[1:-1])]
        per_layer = [heads] * (num_layers - 1) + [1]
        convs = [
            GATConv(before, after, heads=count)
            for before, after, count in zip(wide, widths[1:], per_layer, strict=True)
        ]
        super().__init__(
            convs, wide, layer_norm=layer_norm, dropout=dropout, activation=F.leaky_relu
        )

    def along(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Every layer sums along these edges."""
        graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        return lambda conv, x: conv(x, graph)
