"""Soft Median GDC."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.checks import Count, Positive, Share, Steps
from robust_diffusion.models.adaptive import StraightThrough
from robust_diffusion.models.gcn import gcn_convs
from robust_diffusion.models.stack import Apply, LayerStack
from robust_diffusion.operators import (
    Gradient,
    Graph,
    edge_softmax,
    graph_with_degree,
    pagerank_graph,
    spmm,
    symmetric_weights,
)
from robust_diffusion.operators.graph import gather_dst, gather_src, segment_sum

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
