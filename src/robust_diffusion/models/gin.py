"""Graph isomorphism network."""

from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from robust_diffusion.models.mlp import linear_layers
from robust_diffusion.models.stack import Apply, GINConv, LayerStack
from robust_diffusion.operators import Graph


class GIN(LayerStack):
    """Graph isomorphism network: MLP((1 + eps) x + sum of neighbours), then an MLP for the classes.

    The last of the layers is the classifier, an MLP of two layers that sees no edges; the others
    are convolutions, their MLPs of two layers with batch norm.

    Reference: Xu et al. 2019, arXiv:1810.00826; as GRB configures it.

    Args:
        in_channels: Number of input features; it and those not named here are as for `GCN`.
        num_layers: Number of layers, the classifier included, at least 1.
        batch_norm: Normalise each channel over the nodes at the end of each convolution's MLP.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GIN
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GIN(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(self, *widths: Any, batch_norm: bool = True, **options: Any) -> None:
        super().__init__(*widths, **options)
        *inner, out_channels = self.widths
        convs = [
            GINConv(_mlp(before, after, batch_norm=batch_norm), train_eps=True)
            for before, after in pairwise(inner)
        ]
        hidden, classes = linear_layers([inner[-1], inner[-1], out_channels])
        head = nn.Sequential(hidden, nn.ReLU(), nn.Dropout(self.dropout.p), classes)
        self.stack([*convs, head])
        self.norms[-1] = nn.Identity()  # batch norm has done it

    def along(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """The convolutions sum along these edges, which have no self-loops."""
        graph = Graph.from_edge_index(
            edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype, self_loops=False
        )
        return lambda layer, x: layer(x, graph) if isinstance(layer, GINConv) else layer(x)


def _mlp(in_channels: int, out_channels: int, *, batch_norm: bool) -> nn.Module:
    first, second = linear_layers([in_channels, out_channels, out_channels])
    norm = nn.BatchNorm1d(out_channels) if batch_norm else nn.Identity()
    if batch_norm:
        second.register_parameter("bias", None)  # batch norm subtracts it again
    return nn.Sequential(first, nn.ReLU(), second, norm)
