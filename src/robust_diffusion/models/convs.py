"""PyG's layers, their sums over edges taken by `robust_diffusion.operators`.

PyG's own sums know no edge weights in GAT, GIN and GraphSAGE, and hold a tensor of e x d entries.
Taken by the operators, every layer counts an edge by its weight, a weight of 0 is the same as no
edge, and all outputs are differentiable in the weights. Parameters and their initial values are
PyG's.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch_geometric import nn as pyg

from robust_diffusion.operators import Graph, edge_softmax, gather_dst, gather_src, spmm

SMALLEST_SQUARE = 1e-12
"""Keeps the gradient of a square root finite at 0."""

POOLED_AT_A_TIME = 320
"""Channels of GraphSAGE's projection: of thousands, as of bags of words, a part stays in cache.

Features of GRB's Cora, 302, are one part, so that its published runs keep their bits.
"""


class GCNConv(pyg.GCNConv):  # type: ignore[misc]
    """Weighted sum over incoming edges of x W, plus bias; the graph's weights are as they are."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, normalize=False)

    def forward(self, x: Float[Tensor, "n f"], graph: Graph) -> Float[Tensor, "n d"]:
        """Features of every node's neighbourhood."""
        return spmm(graph.weight, self.lin(x), graph) + self.bias  # type: ignore[no-any-return]


class GATConv(pyg.GATConv):  # type: ignore[misc]
    """Additive attention over incoming edges, an edge counting by its weight in the softmax."""

    def forward(self, x: Float[Tensor, "n f"], graph: Graph) -> Float[Tensor, "n d"]:
        """Features of every node's neighbourhood, with heads concatenated or averaged."""
        projected = self.lin(x).view(-1, self.heads, self.out_channels)
        at_dst = (projected * self.att_dst).sum(-1)
        at_src = (projected * self.att_src).sum(-1)
        scores = gather_dst(at_dst, graph) + gather_src(at_src, graph)
        attention = edge_softmax(F.leaky_relu(scores, self.negative_slope), graph)
        heads = [
            spmm(attention[:, h].contiguous(), projected[:, h], graph) for h in range(self.heads)
        ]
        out = torch.cat(heads, 1) if self.concat else torch.stack(heads).mean(0)
        return out + self.bias  # type: ignore[no-any-return]


class SAGEConv(pyg.SAGEConv):  # type: ignore[misc]
    """W x + W' of the root mean square, over incoming edges, of the projected neighbours.

    Deviation: Hamilton et al. pool by the maximum; GRB, whose choice this is, by the root mean
    square, since powers closer to the maximum make the gradient explode.
    With `project_root` the node itself is projected too, relu(P x) instead of x.
    """

    def __init__(self, in_channels: int, out_channels: int, *, project_root: bool = False) -> None:
        super().__init__(in_channels, out_channels, project=True)
        self.project_root = project_root

    def forward(self, x: Float[Tensor, "n f"], graph: Graph) -> Float[Tensor, "n d"]:
        """Features of every node and its neighbourhood; the weights are those of a mean."""
        weights, biases = (
            part.split(POOLED_AT_A_TIME) for part in (self.lin.weight, self.lin.bias)
        )
        pooled, roots = [], []
        for weight, bias in zip(weights, biases, strict=True):
            projected = F.linear(x, weight, bias).relu()
            squares = spmm(graph.weight, projected.square(), graph)
            pooled.append(torch.sqrt(squares + SMALLEST_SQUARE))
            if self.project_root:
                roots.append(projected)
        root = torch.cat(roots, 1) if self.project_root else x
        return self.lin_l(torch.cat(pooled, 1)) + self.lin_r(root)  # type: ignore[no-any-return]


class GINConv(pyg.GINConv):  # type: ignore[misc]
    """MLP of (1 + eps) x plus the weighted sum over incoming edges.

    The MLP begins with a Linear. Where that narrows the features, as in the first layer, it is
    taken before the sum, which then is one of fewer channels: both are linear.
    """

    def forward(self, x: Float[Tensor, "n f"], graph: Graph) -> Float[Tensor, "n d"]:
        """Features of every node and its neighbourhood; the graph has no self-loops."""
        first = self.nn[0]
        if first.in_features <= first.out_features:
            return self.nn(self._summed(x, graph))  # type: ignore[no-any-return]
        summed = self._summed(F.linear(x, first.weight), graph) + first.bias
        return self.nn[1:](summed)  # type: ignore[no-any-return]

    def _summed(self, x: Tensor, graph: Graph) -> Tensor:
        return (1 + self.eps) * x + spmm(graph.weight, x, graph)  # type: ignore[no-any-return]
