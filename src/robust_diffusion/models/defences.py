"""Convolutional defences, which prune, truncate or re-weight their graph."""

from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from robust_diffusion.checks import Count, Positive, Share, Steps
from robust_diffusion.models.adaptive import StraightThrough
from robust_diffusion.models.convolutional import gcn_convs
from robust_diffusion.models.guard import Guard, Threshold
from robust_diffusion.models.propagating import linear_layers
from robust_diffusion.models.raw_features import RawFeatures
from robust_diffusion.models.stack import Apply, LayerStack
from robust_diffusion.operators import (
    EdgeValues,
    Gradient,
    Graph,
    LowRank,
    edge_softmax,
    gather_dst,
    gather_src,
    graph_with_degree,
    low_rank_product,
    pagerank_graph,
    segment_sum,
    spmm,
    symmetric_weights,
    truncated_svd,
)
from robust_diffusion.operators.edges import VALUES_AT_A_TIME
from robust_diffusion.system.tensor_hashes import ByTensor


class GNNGuard(LayerStack):
    """Graph convolutions along edges that `Guard` has pruned and re-weighted before each layer.

    Reference: Zhang and Zitnik 2020, arXiv:2006.08149; as GRB configures it.

    Args:
        in_channels: Number of input features; `threshold` and `gradient` are as for `Guard`, all
            others as for `GCN`.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GNNGuard
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GNNGuard(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        *widths: Any,
        threshold: Threshold = 0.1,
        gradient: Gradient = "exact",
        **options: Any,
    ) -> None:
        super().__init__(*widths, **options)
        self.stack(gcn_convs(self.widths))
        self.guard = Guard(threshold=threshold, gradient=gradient)

    def make_adaptive(self) -> bool:
        """Let a gradient through to pruned edges; see `HasAdaptiveForm`."""
        self.guard, before = self.guard.adaptive(), self.guard
        return self.guard != before

    def along(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Each layer judges the edges that the one before has kept."""
        graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)

        def apply(conv: nn.Module, x: Tensor) -> Tensor:
            nonlocal graph
            graph, weighted = self.guard(x, graph)
            return conv(x, weighted)  # type: ignore[no-any-return]

        return apply


class GCNJaccard(StraightThrough, LayerStack):
    """Graph convolutions along edges whose ends share words: sum min / sum max of their counts.

    Of 0 and 1 that is the Jaccard similarity of two sets of words. Features are read as they were
    before `arctan` normalised them, and count nothing below 0; frequencies are taken for counts.

    Reference: Wu et al. 2019, arXiv:1903.01610; the threshold as in DeepRobust, arXiv:2005.06149.

    Deviation: The paper removes edges of a similarity of 0, of words that are 0 or 1.

    Args:
        in_channels: Number of input features; it and those not named here are as for `GCN`.
        threshold: Edges of a lower similarity are pruned, in [0, 1].
        gradient: With respect to the edge weights: `exact`, that of the edges that stay;
            `straight_through`, as if all had stayed, and in the features by the similarity;
            `detached`, none.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GCNJaccard
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GCNJaccard(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        *widths: Any,
        threshold: Share = 0.01,
        gradient: Gradient = "exact",
        **options: Any,
    ) -> None:
        super().__init__(*widths, **options)
        self.stack(gcn_convs(self.widths))
        self.raw = RawFeatures()
        self.threshold = threshold
        self.gradient: Gradient = gradient

    def along(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Every layer sums along the normalised edges that stay."""
        graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        through = self.gradient == "straight_through"

        is_followed = through and torch.is_grad_enabled()

        def compute() -> EdgeValues:
            with torch.set_grad_enabled(is_followed):
                return shared_words(self.raw(x).clamp_min(0), graph)

        if is_followed:
            similarity = compute()
        else:
            of_features = _FOUND.kept(self.raw.normalized, "features", ByTensor)
            of_edges = of_features.kept(x, "edges", ByTensor)
            similarity = of_edges.kept(edge_index, "similarity", compute)
        stays = (graph.src == graph.dst) | (similarity >= self.threshold)
        weight = torch.where(stays, graph.weight, 0)
        if through:
            unpruned = graph.weight * (1 + similarity - similarity.detach())
            weight = unpruned + (weight - unpruned).detach()
        graph = replace(graph, weight=weight.detach() if self.gradient == "detached" else weight)
        graph = replace(graph, weight=symmetric_weights(graph))
        return lambda conv, x: conv(x, graph)


_FOUND = ByTensor()
"""Similarities that training asks for in each epoch, by scale, features and edges."""


def shared_words(counts: Float[Tensor, "n f"], graph: Graph) -> EdgeValues:
    """Sum of the lower over sum of the higher counts at both ends of each edge; 0 for no word."""
    # Some columns at a time: features at both ends of every edge would not fit into memory.
    columns = max(16, VALUES_AT_A_TIME // max(1, graph.num_edges))
    parts: list[Tensor] = [
        checkpoint(_distance, part, graph, use_reentrant=False, preserve_rng_state=False)
        for part in torch.split(counts, columns, dim=1)
    ]
    apart = torch.stack(parts).sum(0)
    total = counts.sum(1)
    both = gather_dst(total, graph) + gather_src(total, graph)
    return (both - apart) / (both + apart).clamp_min(1e-9)


def _distance(counts: Float[Tensor, "n f"], graph: Graph) -> EdgeValues:
    return (gather_dst(counts, graph) - gather_src(counts, graph)).abs().sum(1)


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


_SMALLEST = 1e-12
"""Keeps the gradient of the distance from the median finite at 0."""


class SoftMedianGDC(StraightThrough, LayerStack):
    """Graph convolutions on a diffused graph that trust neighbours near their median.

    The weights a_uv of the edges are each node's k highest scores of personalised PageRank,
    normalised by the roots of their sums; they are found for each graph again. With H = X W of d
    channels and their weighted median m_u, channel by channel, a layer is sum over v of c_uv H_v,
    where c_uv is proportional to a_uv exp(-|m_u - H_v| / (T sqrt(d))) and sums to what a_uv does.

    Reference: Geisler et al. 2021, arXiv:2110.14038; the graph is that of Gasteiger et al. 2019,
    arXiv:1911.05485.

    Deviation: PageRank is taken by steps; the authors invert the matrix.

    Args:
        in_channels: Number of input features; it and those not named here are as for `GCN`.
        temperature: T, above 0; neighbours that are far from the median count less the lower it is.
        teleport: Probability of a restart of PageRank, in [0, 1].
        num_iterations: Steps of PageRank, at least 0.
        neighbors: k, at least 1.
        gradient: With respect to the edge weights: `exact`, that of the scores that are kept;
            `straight_through`, also that of the scores at the edges that are cut off, such as one
            that an attack tries; `detached`, none.

    Examples:
        >>> import torch
        >>> from robust_diffusion import SoftMedianGDC
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> SoftMedianGDC(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        *widths: Any,
        temperature: Positive = 0.5,
        teleport: Share = 0.15,
        num_iterations: Steps = 50,
        neighbors: Count = 64,
        gradient: Gradient = "exact",
        **options: Any,
    ) -> None:
        super().__init__(*widths, **options)
        self.stack(gcn_convs(self.widths))
        self.temperature = temperature
        self.teleport = teleport
        self.num_iterations = num_iterations
        self.neighbors = neighbors
        self.gradient: Gradient = gradient

    def along(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Every layer sums along the diffused graph."""
        if edge_weight is not None and self.gradient == "detached":
            edge_weight = edge_weight.detach()
        graph, _ = graph_with_degree(x, edge_index, edge_weight)
        through = self.gradient == "straight_through"
        graph = pagerank_graph(
            graph, self.teleport, self.num_iterations, self.neighbors, straight_through=through
        )
        graph = replace(graph, weight=symmetric_weights(graph))

        def apply(conv: Any, x: Tensor) -> Tensor:
            return soft_median(conv.lin(x), graph, self.temperature) + conv.bias  # type: ignore[no-any-return]

        return apply


def soft_median(z: Float[Tensor, "n d"], graph: Graph, temperature: float) -> Float[Tensor, "n d"]:
    """Sum over the edges that arrive at a node, by weight and nearness to their median."""
    apart = gather_dst(weighted_median(z, graph), graph) - gather_src(z, graph)
    distance = (apart.square().sum(1) / z.size(1)).clamp_min(_SMALLEST**2).sqrt()
    trust = edge_softmax(-distance[:, None] / temperature, graph).squeeze(1)
    return spmm(trust * gather_dst(segment_sum(graph.weight, graph), graph), z, graph)


def weighted_median(z: Float[Tensor, "n d"], graph: Graph) -> Float[Tensor, "n d"]:
    """Lowest value, channel by channel, at which half of the weight that arrives is reached."""
    with torch.no_grad():
        rank = z.argsort(dim=0, stable=True).argsort(0)
        place = graph.dst[:, None] * graph.num_nodes + gather_src(rank, graph)
        order = place.T.contiguous().sort(1).indices  # by node, then by value; a row per channel
        # In double precision, as the sums run on from node to node.
        reached = graph.weight.double()[order].cumsum(1)
        ends = torch.nn.functional.pad(reached, (1, 0))[:, graph.rowptr]
        # Where a value reaches exactly half, rounding must not decide.
        half = (ends[:, :-1] + ends.diff(dim=1) * (0.5 - 1e-9)).contiguous()
        at = torch.searchsorted(reached, half).clamp_max(graph.num_edges - 1)
        median = graph.src[order.gather(1, at)].T
    return z.gather(0, median)
