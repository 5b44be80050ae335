"""GCN-SVD."""

from typing import Any, Literal

import torch
from torch import Tensor

from robust_diffusion.checks import Count
from robust_diffusion.models.adaptive import StraightThrough
from robust_diffusion.models.guard import Gradient
from robust_diffusion.models.mlp import linear_layers
from robust_diffusion.models.stack import Apply, LayerStack
from robust_diffusion.operators import Graph, LowRank, low_rank_product, truncated_svd

NegativeDegree = Literal["zero", "grb"]
"""Treatment of a row of the truncated matrix whose sum is below 0, which has no square root: `zero`
cuts the node off; `grb` is GRB's code, where one such row turns every logit into NaN."""


class GCNSVD(StraightThrough, LayerStack):
    """Graph convolutions along the best rank-k approximation of the adjacency matrix.

    Attacks tend to raise the rank of the adjacency matrix; what its largest singular values keep
    is the smooth part. The layers work on the factors, D^{-1/2} (U S V^T + I) D^{-1/2} X W, and
    no n x n matrix is formed.

    Reference: Entezari et al. 2020, doi:10.1145/3336191.3371789; rank 50 as in GRB.

    Args:
        in_channels: Number of input features; it and those not named here are as for `GCN`.
        rank: Number of singular values k that are kept, at least 1.
        gradient: With respect to the edge weights: `exact`, that of the truncated matrix;
            `straight_through`, as if nothing had been truncated; `detached`, none, as in GRB.
        negative_degree: `zero` or `grb`; see `NegativeDegree`.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GCNSVD
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GCNSVD(5, 8, 3, rank=2)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        *widths: Any,
        rank: Count = 50,
        gradient: Gradient = "exact",
        negative_degree: NegativeDegree = "zero",
        **options: Any,
    ) -> None:
        super().__init__(*widths, **options)
        self.stack(linear_layers(self.widths))
        self.rank = rank
        self.gradient: Gradient = gradient
        self.negative_degree = negative_degree

    def along(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Every layer sums along the truncated matrix, whose factors are computed first."""
        graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        factors = self._factors(graph, unweighted=edge_weight is None)

        def neighbours(z: Tensor) -> Tensor:
            return low_rank_product(z, factors, graph, gradient=self.gradient) + z

        degree = neighbours(x.new_ones(x.size(0), 1))
        positive = degree > 0
        scale = torch.where(positive, torch.where(positive, degree, 1.0).rsqrt(), 0.0)
        if self.negative_degree == "grb":
            scale = scale.masked_fill(degree < 0, torch.nan)
        return lambda linear, x: scale * neighbours(scale * linear(x))

    def _factors(self, graph: Graph, *, unweighted: bool) -> LowRank:
        if not unweighted:
            return truncated_svd(graph, self.rank)
        key = "factors", self.rank, graph.weight.dtype
        return graph.indexes.kept(key, lambda: truncated_svd(graph, self.rank))
