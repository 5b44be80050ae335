"""Edge weights over degrees."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.operators.graph import EdgeValues, Graph
from robust_diffusion.operators.segments import gather_dst, gather_src, segment_sum


def symmetric_weights(
    graph: Graph, degree: Float[Tensor, " n"] | None = None, *, order: float = -0.5
) -> EdgeValues:
    """Edge weights of D^order (A + I) D^order; `graph` has the edges of A + I.

    D is `degree`, or the sum of the weights that arrive at a node; an edge from a node that none
    reaches, which has no self-loop then, weighs 0. Without weights of its own, a graph keeps them.
    """
    if degree is None and graph.unweighted:
        key = "symmetric_weights", order, graph.weight.dtype
        return graph.indexes.kept(key, lambda: _over_degrees(graph, None, order))
    return _over_degrees(graph, degree, order)


def _over_degrees(graph: Graph, degree: Tensor | None, order: float) -> Tensor:
    if degree is None:
        degree = segment_sum(graph.weight, graph)
        degree = torch.where(degree > 0, degree, torch.inf)
    scale = degree.clamp_min(1e-38).pow(order)
    return gather_src(scale, graph) * graph.weight * gather_dst(scale, graph)


def graph_with_degree(
    x: Float[Tensor, "n f"],
    edge_index: Int[Tensor, "2 e"],
    edge_weight: EdgeValues | None = None,
    degree: Float[Tensor, " n"] | None = None,
) -> tuple[Graph, Float[Tensor, " n"]]:
    """The graph with self-loops, and the degrees to normalise by: its own if none are given.

    GRB normalises the whole graph and cuts it then, so degrees may be those of a larger graph.
    """
    graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
    return graph, segment_sum(graph.weight, graph) if degree is None else degree


def mean_weights(graph: Graph, degree: Float[Tensor, " n"]) -> EdgeValues:
    """Edge weights of D^-1 (A + I), a mean over the edges that arrive at a node."""
    return graph.weight * gather_dst(degree.clamp_min(1e-38).reciprocal(), graph)
