"""Adapter for models of the Graph Robustness Benchmark (GRB)."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.checks import validated
from robust_diffusion.operators import Graph, graph_with_degree, mean_weights, symmetric_weights

_Normalization = Literal["symmetric", "mean", "both", "none"]
"""Counterparts of a model's `adj_norm_func` in GRB: `GCNAdjNorm`, `SAGEAdjNorm`,
`RobustGCNAdjNorm`, or none."""


@validated("model")
class GRBModel(nn.Module):
    """Adapter that calls a torch model of GRB, `model(x, adjacency)`, with edges.

    Attacks, audits and evaluations then accept it like any other model. Its logits are
    differentiable in the features and in the edge weights, unlike with GRB's normalisation in
    scipy.

        model = GRBModel(grb.model.torch.GCN(...)).eval()
        model = GRBModel(grb.model.torch.GIN(...), normalization="none").eval()

    Reference: Zheng et al. 2021, Graph Robustness Benchmark, arXiv:2111.04314.

    Args:
        model: Model of the features and a sparse COO adjacency matrix, n x n, or a list of two
            matrices if `normalization` is `both`.
        normalization: Normalisation of the adjacency matrix A: `symmetric` for
            D^-1/2 (A + I) D^-1/2; `mean` for D^-1 (A + I); `both` for a list of the first and
            D^-1 (A + I) D^-1; or `none` for A itself, without self-loops.

    Raises:
        ConfigError: The normalisation is unknown.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from robust_diffusion.models import GRBModel
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
        """Return class logits of every node; edge weights are 1 by default."""
        adjacency: Tensor | list[Tensor]
        if self.normalization == "none":
            n = x.size(0)
            graph = Graph.from_edge_index(
                edge_index, edge_weight, num_nodes=n, dtype=x.dtype, self_loops=False
            )
            adjacency = _coo(graph, graph.full_weight)
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
    """Build a sparse matrix whose rows are the nodes at which edges arrive."""
    place, size = torch.stack([graph.dst, graph.src]), (graph.num_nodes, graph.num_nodes)
    return torch.sparse_coo_tensor(place, weight, size, check_invariants=False)
