"""Convolutional defences, which prune, truncate or re-weight their graph."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from robust_diffusion.checks import (
    Count,
    Layers,
    Positive,
    Probability,
    Share,
    Steps,
    Width,
    validated,
)
from robust_diffusion.models.adaptive import SwitchableGradient
from robust_diffusion.models.convolutional import gcn_convs
from robust_diffusion.models.guard import Guard, Threshold
from robust_diffusion.models.propagating import linear_layers
from robust_diffusion.models.raw_features import RawFeatures
from robust_diffusion.models.stack import Apply, LayerStack, layer_widths, run_layer
from robust_diffusion.operators import (
    AnyFeatures,
    EdgeValues,
    Gradient,
    Graph,
    LowRank,
    gather_dst,
    gather_src,
    graph_with_degree,
    low_rank_product,
    pagerank_graph,
    row_softmax,
    row_sum,
    spmm,
    symmetric_weights,
    truncated_svd,
)
from robust_diffusion.operators.edges import VALUES_AT_A_TIME
from robust_diffusion.system.tensor_hashes import ByTensor


@validated("model")
class GNNGuard(LayerStack):
    """Graph convolutions along edges that `Guard` has pruned and re-weighted before each layer.

    Reference: Zhang and Zitnik 2020, arXiv:2006.08149; as GRB configures it.

    Args:
        in_channels: Number of input features. For `threshold` and `gradient` see `Guard`; for all
            other arguments see `GCN`.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import GNNGuard
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GNNGuard(5, 8, out_channels=3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        *,
        out_channels: Count,
        threshold: Threshold = 0.1,
        gradient: Gradient = "exact",
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(widths, layer_norm=layer_norm, dropout=dropout)
        self.stack(gcn_convs(widths))
        self.guard = Guard(threshold=threshold, gradient=gradient)

    def make_adaptive(self) -> bool:
        """Pass the gradient through to pruned edges; see `HasAdaptiveForm`."""
        self.guard, before = self.guard.adaptive(), self.guard
        return self.guard != before

    def along(self, x: AnyFeatures, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Return the function that applies a layer along the edges the previous layers kept."""
        graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)

        def apply(conv: nn.Module, x: AnyFeatures) -> Tensor:
            nonlocal graph
            graph, weighted = self.guard(x, graph)
            return conv(x, weighted)  # type: ignore[no-any-return]

        return apply


@validated("model")
class GCNJaccard(SwitchableGradient, LayerStack):
    """Graph convolutions along edges whose ends share words: sum min / sum max of their counts.

    For counts of 0 and 1, this is the Jaccard similarity of two sets of words. The `arctan`
    normalisation of features is inverted first, and values below 0 count as 0. Frequencies are
    treated as counts.

    Reference: Wu et al. 2019, arXiv:1903.01610; the threshold as in DeepRobust, arXiv:2005.06149.

    Deviation: The paper uses words that are 0 or 1, and removes edges of similarity 0.

    Args:
        in_channels: Number of input features; see `GCN` for this and all arguments not listed.
        threshold: Similarity below which an edge is pruned, in [0, 1].
        gradient: Gradient with respect to the edge weights: `exact` for that of the remaining
            edges; `straight_through` as if no edge were pruned, and also in the features, run_layer
            the similarity; `detached` for none.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import GCNJaccard
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GCNJaccard(5, 8, out_channels=3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        *,
        out_channels: Count,
        threshold: Share = 0.01,
        gradient: Gradient = "exact",
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(widths, layer_norm=layer_norm, dropout=dropout)
        self.stack(gcn_convs(widths))
        self.raw = RawFeatures()
        self.threshold = threshold
        self.gradient: Gradient = gradient

    def along(self, x: AnyFeatures, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Return the function that applies a layer along the remaining edges, normalised."""
        graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        through = self.gradient == "straight_through"
        words = x if isinstance(x, Tensor) else x.dense()
        is_followed = through and torch.is_grad_enabled()

        def compute() -> EdgeValues:
            with torch.set_grad_enabled(is_followed):
                return shared_words(self.raw(words).clamp_min(0), graph)

        if is_followed:
            similarity = compute()
        else:
            of_features = _FOUND.kept(self.raw.normalized, "features", ByTensor)
            of_edges = of_features.kept(words, "edges", ByTensor)
            similarity = of_edges.kept(edge_index, "similarity", compute)
        stays = (graph.src == graph.dst) | (similarity >= self.threshold)
        weight = torch.where(stays, graph.full_weight, 0)
        if through:
            unpruned = graph.full_weight * (1 + similarity - similarity.detach())
            weight = unpruned + (weight - unpruned).detach()
        graph = replace(graph, weight=weight.detach() if self.gradient == "detached" else weight)
        graph = replace(graph, weight=symmetric_weights(graph))
        return lambda conv, x: conv(x, graph)


_FOUND = ByTensor()
"""Cached similarities, needed in each epoch of training, by scale, features and edges."""


def shared_words(counts: Float[Tensor, "n f"], graph: Graph) -> EdgeValues:
    """Compute the sum of min over the sum of max of the counts at the ends of each edge.

    The result is 0 if neither end has a word.
    """
    # Some columns at a time, since features at both ends of every edge may not fit into memory.
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
"""Treatment of rows of the truncated matrix with a negative sum, which has no square root: `zero`
disconnects the node; `grb` is GRB's code, where one such row turns every logit into NaN."""


@validated("model")
class GCNSVD(SwitchableGradient, LayerStack):
    """Graph convolutions along the best rank-k approximation of the adjacency matrix.

    Attacks tend to raise the rank of the adjacency matrix, while its largest singular values keep
    the smooth part. The layers multiply by the factors, D^{-1/2} (U S V^T + I) D^{-1/2} X W, so
    that no n x n matrix is formed.

    Reference: Entezari et al. 2020, doi:10.1145/3336191.3371789; rank 50 as in GRB.

    Args:
        in_channels: Number of input features; see `GCN` for this and all arguments not listed.
        rank: Number of singular values k to keep, at least 1.
        gradient: Gradient with respect to the edge weights: `exact` for that of the truncated
            matrix; `straight_through` as if nothing were truncated; `detached` for none, as in GRB.
        negative_degree: Treatment of rows with a negative sum: `zero` disconnects the node; `grb`
            is GRB's code, where one such row turns every logit into NaN.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import GCNSVD
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GCNSVD(5, 8, out_channels=3, rank=2)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        *,
        out_channels: Count,
        rank: Count = 50,
        gradient: Gradient = "exact",
        negative_degree: NegativeDegree = "zero",
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(widths, layer_norm=layer_norm, dropout=dropout)
        self.stack(linear_layers(widths))
        self.rank = rank
        self.gradient: Gradient = gradient
        self.negative_degree = negative_degree

    def along(self, x: AnyFeatures, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Compute the factors; return the function that applies a layer along the product."""
        graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        factors = self._factors(graph)

        def neighbours(z: Tensor) -> Tensor:
            return low_rank_product(z, factors, graph, gradient=self.gradient) + z

        degree = neighbours(graph.full_weight.new_ones(graph.num_nodes, 1))
        positive = degree > 0
        scale = torch.where(positive, torch.where(positive, degree, 1.0).rsqrt(), 0.0)
        if self.negative_degree == "grb":
            scale = scale.masked_fill(degree < 0, torch.nan)
        return lambda linear, x: scale * neighbours(scale * run_layer(linear, x))

    def _factors(self, graph: Graph) -> LowRank:
        if graph.weight is not None:
            return truncated_svd(graph, self.rank)
        key = "factors", self.rank, graph.dtype
        return graph.edges.cached(key, lambda: truncated_svd(graph, self.rank))


_SMALLEST = 1e-12
"""Keeps the gradient of the distance from the median finite at 0."""


@validated("model")
class SoftMedianGDC(SwitchableGradient, LayerStack):
    """Graph convolutions on a diffused graph that trust neighbours near their median.

    The weights a_uv of the edges are each node's k highest scores of personalised PageRank,
    normalised by the roots of their sums, and are computed for each graph. Let H = X W have d
    channels, and let m_u be the weighted median of the neighbours in each channel. A layer is
    sum over v of c_uv H_v, where c_uv is proportional to a_uv exp(-|m_u - H_v| / (T sqrt(d))) and
    has the same sum over v as a_uv.

    Reference: Geisler et al. 2021, arXiv:2110.14038; the graph is that of Gasteiger et al. 2019,
    arXiv:1911.05485.

    Deviation: PageRank is computed by iteration; the authors invert the matrix.

    Args:
        in_channels: Number of input features; see `GCN` for this and all arguments not listed.
        temperature: T, above 0; the lower it is, the less neighbours far from the median count.
        teleport: Probability of a restart of PageRank, in [0, 1].
        num_iterations: Steps of PageRank, at least 0.
        neighbors: k, at least 1.
        gradient: Gradient with respect to the edge weights: `exact` for that of the k highest
            scores; `straight_through` also for that of scores at other edges, such as those that
            an attack tries; `detached` for none.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import SoftMedianGDC
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> SoftMedianGDC(5, 8, out_channels=3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        *,
        out_channels: Count,
        temperature: Positive = 0.5,
        teleport: Share = 0.15,
        num_iterations: Steps = 50,
        neighbors: Count = 64,
        gradient: Gradient = "exact",
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(widths, layer_norm=layer_norm, dropout=dropout)
        self.stack(gcn_convs(widths))
        self.temperature = temperature
        self.teleport = teleport
        self.num_iterations = num_iterations
        self.neighbors = neighbors
        self.gradient: Gradient = gradient

    def along(self, x: AnyFeatures, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Return the function that applies a layer along the diffused graph."""
        if edge_weight is not None and self.gradient == "detached":
            edge_weight = edge_weight.detach()
        graph, _ = graph_with_degree(x, edge_index, edge_weight)
        through = self.gradient == "straight_through"
        graph = pagerank_graph(
            graph, self.teleport, self.num_iterations, self.neighbors, straight_through=through
        )
        graph = replace(graph, weight=symmetric_weights(graph))

        def apply(conv: Any, x: AnyFeatures) -> Tensor:
            return soft_median(run_layer(conv.lin, x), graph, self.temperature) + conv.bias  # type: ignore[no-any-return]

        return apply


def soft_median(z: Float[Tensor, "n d"], graph: Graph, temperature: float) -> Float[Tensor, "n d"]:
    """Sum the edges that arrive at a node, weighted also by their distance to the median."""
    apart = gather_dst(weighted_median(z, graph), graph) - gather_src(z, graph)
    distance = (apart.square().sum(1) / z.size(1)).clamp_min(_SMALLEST**2).sqrt()
    trust = row_softmax(-distance[:, None] / temperature, graph).squeeze(1)
    return spmm(trust * gather_dst(row_sum(graph.full_weight, graph), graph), z, graph)


def weighted_median(z: Float[Tensor, "n d"], graph: Graph) -> Float[Tensor, "n d"]:
    """Return the weighted median of the edges that arrive at a node, channel by channel."""
    with torch.no_grad():
        rank = z.argsort(dim=0, stable=True).argsort(0)
        place = graph.dst[:, None] * graph.num_nodes + gather_src(rank, graph)
        order = place.T.contiguous().sort(1).indices  # by node, then by value; a row per channel
        # In double precision, since the cumulative sum runs over all nodes.
        reached = graph.full_weight.double()[order].cumsum(1)
        ends = torch.nn.functional.pad(reached, (1, 0))[:, graph.edges.rowptr.long()]
        # Slightly below half, so that rounding does not decide if a value reaches exactly half.
        half = (ends[:, :-1] + ends.diff(dim=1) * (0.5 - 1e-9)).contiguous()
        at = torch.searchsorted(reached, half).clamp_max(graph.num_edges - 1)
        median = graph.src[order.gather(1, at)].T
    return z.gather(0, median)
