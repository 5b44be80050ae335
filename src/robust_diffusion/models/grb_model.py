"""Models of the Graph Robustness Benchmark, called as models are here."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.checks import validated
from robust_diffusion.operators import Graph, graph_with_degree, mean_weights, symmetric_weights

_Normalization = Literal["symmetric", "mean", "both", "none"]
"""GRB's `adj_norm_func` of a model: `GCNAdjNorm`, `SAGEAdjNorm`, `RobustGCNAdjNorm` or none."""


@validated("model")
class GRBModel(nn.Module):
    """Adapter: a torch model of GRB's, `model(x, adjacency)`, as `(x, edge_index[, edge_weight])`.

    Attacks, audits and evaluations then take it as any other model; its logits are differentiable
    in the features and in the edge weights, which GRB's own normalisation in scipy is not.

        model = GRBModel(grb.model.torch.GCN(...)).eval()
        model = GRBModel(grb.model.torch.GIN(...), normalization="none").eval()

    Reference: Zheng et al. 2021, Graph Robustness Benchmark, arXiv:2111.04314.

    Args:
        model: Called with the features and a sparse COO adjacency matrix, n x n; of a list of two
            matrices with `both`.
        normalization: Of the matrix A with self-loops: `symmetric`, D^-1/2 (A + I) D^-1/2; `mean`,
            D^-1 (A + I); `both`, a list of the first and of D^-1 (A + I) D^-1; or `none`, A itself
            without self-loops.

    Raises:
        ConfigError: An unknown normalisation.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from robust_diffusion import GRBModel
        >>> class Summed(nn.Module):
        ...     def forward(self, x, adj):
        ...         return torch.sparse.mm(adj, x)
        >>> x, edge_index = torch.ones(2, 3), torch.tensor([[0, 1], [1, 0]])
        >>> GRBModel(Summed(), normalization="none")(x, edge_index).shape
        torch.Size([2, 3])
    """

    def __init__(self, model: nn.Module, *, normalization: _Normalization = "symmetric") -> None:
        super().__init__()
        self.model = model
        self.normalization = normalization

    def forward(
        self,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Class logits of every node; an edge weight is 1 when absent."""
        adjacency: Tensor | list[Tensor]
        if self.normalization == "none":
            n = x.size(0)
            graph = Graph.from_edge_index(
                edge_index, edge_weight, num_nodes=n, dtype=x.dtype, self_loops=False
            )
            adjacency = _coo(graph, graph.weight)
        else:
            graph, degree = graph_with_degree(x, edge_index, edge_weight)
            if self.normalization == "mean":
                adjacency = _coo(graph, mean_weights(graph, degree))
            else:
                adjacency = _coo(graph, symmetric_weights(graph, degree))
            if self.normalization == "both":
                inverse = symmetric_weights(graph, degree, order=-1)
                adjacency = [adjacency, _coo(graph, inverse)]
        return self.model(x, adjacency)  # type: ignore[no-any-return]


def _coo(graph: Graph, weight: Tensor) -> Tensor:
    """Rows are the nodes at which edges arrive."""
    place, size = torch.stack([graph.dst, graph.src]), (graph.num_nodes, graph.num_nodes)
    return torch.sparse_coo_tensor(place, weight, size, check_invariants=False)
