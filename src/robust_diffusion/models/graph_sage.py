"""GraphSAGE."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.checks import Count, Layers, Probability, Width
from robust_diffusion.models.convs import SAGEConv
from robust_diffusion.models.normalization import graph_with_degree, mean_weights
from robust_diffusion.models.stack import Apply, LayerStack
from robust_diffusion.models.widths import layer_widths

Variant = Literal["original", "grb"]
"""The node's own input to a layer: `original` takes x, `grb` takes relu(P x), as of neighbours."""


class GraphSAGE(LayerStack):
    """GraphSAGE with pooling: W x + W' pool over the neighbourhood of relu(P x), on unit features.

    With `variant="grb"` it is W relu(P x) in the place of W x.

    Reference: Hamilton et al. 2017, arXiv:1706.02216; as GRB configures it, see `SAGEConv`.

    Args:
        in_channels: Number of input features; it and those not named here are as for `GCN`.
        variant: The published one, or GRB's; see `Variant`.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GraphSAGE
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GraphSAGE(5, 8, 3)(x, edge_index).shape
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
        layer_norm: bool = True,
        dropout: Probability = 0.5,
        variant: Variant = "original",
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        convs = [
            SAGEConv(before, after, project_root=variant == "grb")
            for before, after in pairwise(widths)
        ]
        super().__init__(convs, widths[:-1], layer_norm=layer_norm, dropout=dropout)

    def forward(
        self,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        degree: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Class logits of every node; `degree` as for `GCN`."""
        return self.run(x, self.along(x, edge_index, edge_weight, degree))

    def along(
        self,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        degree: Float[Tensor, " n"] | None = None,
    ) -> Apply:
        """Every layer takes means along these edges, of unit features."""
        graph, degree = graph_with_degree(x, edge_index, edge_weight, degree)
        graph = replace(graph, weight=mean_weights(graph, degree))
        # The bound keeps the gradient of a node without features finite.
        return lambda conv, x: conv(F.normalize(x, dim=1, eps=1e-6), graph)
