"""Graph convolutional network, the surrogate of the black-box attacks."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.checks import Count, Layers, Probability, Width
from robust_diffusion.models.convs import GCNConv
from robust_diffusion.models.normalization import graph_with_degree
from robust_diffusion.models.stack import Apply, LayerStack
from robust_diffusion.models.widths import layer_widths
from robust_diffusion.operators import symmetric_weights


class GCN(LayerStack):
    """Graph convolutional network: relu(D^{-1/2} (A + I) D^{-1/2} X W) per layer.

    Reference: Kipf and Welling 2017, arXiv:1609.02907; as GRB configures it.

    Args:
        in_channels: Number of input features.
        hidden_channels: Width of every hidden layer, or one width each.
        out_channels: Number of classes.
        num_layers: Number of layers.
        layer_norm: Normalise the features at the entry of each layer.
        dropout: Probability of dropping a feature at the end of each hidden layer, in [0, 1).

    Examples:
        >>> import torch
        >>> from robust_diffusion import GCN
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GCN(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    normalizes_by_degree = True

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        out_channels: Count,
        *,
        num_layers: Layers = 3,
        layer_norm: bool = False,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(gcn_convs(widths), widths[:-1], layer_norm=layer_norm, dropout=dropout)

    def forward(
        self,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        degree: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Class logits of every node; `degree`, self-loops included, stands for this graph's."""
        return self.run(x, self.along(x, edge_index, edge_weight, degree))

    def along(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        degree: Tensor | None = None,
    ) -> Apply:
        """Every layer sums along the normalised edges."""
        graph, degree = graph_with_degree(x, edge_index, edge_weight, degree)
        graph = replace(graph, weight=symmetric_weights(graph, degree))
        return lambda conv, x: conv(x, graph)


def gcn_convs(widths: Sequence[int]) -> list[GCNConv]:
    """Convolutions between layers of these widths, initialised as in GRB."""
    convs = [GCNConv(before, after) for before, after in pairwise(widths)]
    for conv in convs:
        nn.init.xavier_normal_(conv.lin.weight, gain=nn.init.calculate_gain("relu"))
    return convs
