"""Graph convolutional network, the surrogate of the black-box attacks."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from robust_diffusion.checks import check_number
from robust_diffusion.models.widths import layer_widths
from robust_diffusion.operators import Graph, gather_dst, gather_src, segment_sum


class GCN(nn.Module):
    """Graph convolutional network: relu(D^{-1/2} (A + I) D^{-1/2} X W) per layer.

    Reference: Kipf and Welling 2017, arXiv:1609.02907; as GRB configures it.

    Args:
        in_channels: Number of input features.
        hidden_channels: Width of every hidden layer, or one width each.
        out_channels: Number of classes.
        num_layers: Number of layers.
        layer_norm: Normalise the features at the entry of each layer.
        dropout: Probability of dropping a feature at the end of each hidden layer, in [0, 1).
    """

    normalizes_by_degree = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int | Sequence[int],
        out_channels: int,
        *,
        num_layers: int = 3,
        layer_norm: bool = False,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        check_number("model.dropout", dropout, at_least=0, below=1)
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        pairs = list(pairwise(widths))
        self.norms = nn.ModuleList(
            nn.LayerNorm(before) if layer_norm else nn.Identity() for before, _ in pairs
        )
        convs = [GCNConv(before, after, normalize=False) for before, after in pairs]
        for conv in convs:
            nn.init.xavier_normal_(conv.lin.weight, gain=nn.init.calculate_gain("relu"))
        self.convs = nn.ModuleList(convs)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        degree: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Class logits of every node.

        Args:
            x: Node features.
            edge_index: Edges, without self-loops.
            edge_weight: Edge weights; 1 when absent.
            degree: Degrees, self-loop included, to normalise by, if not those of this graph.
        """
        edge_index, edge_weight = symmetric_normalization(
            edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype, degree=degree
        )
        for norm, conv in zip(self.norms[:-1], self.convs[:-1], strict=True):
            x = self.dropout(torch.relu(conv(norm(x), edge_index, edge_weight)))
        return self.convs[-1](self.norms[-1](x), edge_index, edge_weight)  # type: ignore[no-any-return]


def symmetric_normalization(
    edge_index: Int[Tensor, "2 e"],
    edge_weight: Float[Tensor, " e"] | None,
    *,
    num_nodes: int,
    dtype: torch.dtype,
    degree: Float[Tensor, " n"] | None = None,
) -> tuple[Int[Tensor, "2 e2"], Float[Tensor, " e2"]]:
    """Edges and weights of D^{-1/2} (A + I) D^{-1/2}.

    PyG's `gcn_norm` does the same, except that it takes no foreign degrees, which GRB's reading
    (normalise the whole graph, then cut) needs.
    """
    graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=num_nodes, dtype=dtype)
    if degree is None:
        degree = segment_sum(graph.weight, graph)
    scale = degree.clamp_min(1e-38).rsqrt()
    return graph.edge_index, gather_src(scale, graph) * graph.weight * gather_dst(scale, graph)
