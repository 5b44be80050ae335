"""Graph convolutional network, the surrogate of the black-box attacks."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import nn

from robust_diffusion.models.stack import GCNConv, NormalizedStack


class GCN(NormalizedStack):
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

    def __init__(self, *widths: Any, layer_norm: bool = False, **options: Any) -> None:
        super().__init__(*widths, layer_norm=layer_norm, **options)
        self.stack(gcn_convs(self.widths))


def gcn_convs(widths: Sequence[int]) -> list[GCNConv]:
    """Convolutions between layers of these widths, initialised as in GRB."""
    convs = [GCNConv(before, after) for before, after in pairwise(widths)]
    for conv in convs:
        nn.init.xavier_normal_(conv.lin.weight, gain=nn.init.calculate_gain("relu"))
    return convs
