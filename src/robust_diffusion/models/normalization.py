"""Normalised adjacency matrices with self-loops."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.operators import Graph, gather_dst, gather_src, segment_sum


def graph_with_degree(
    edge_index: Int[Tensor, "2 e"],
    edge_weight: Float[Tensor, " e"] | None,
    *,
    num_nodes: int,
    dtype: torch.dtype,
    degree: Float[Tensor, " n"] | None = None,
) -> tuple[Graph, Float[Tensor, " n"]]:
    """The graph with self-loops, and the degrees to normalise by.

    Args:
        edge_index: Edges.
        edge_weight: Their weights; 1 when absent.
        num_nodes: Number of nodes n.
        dtype: Type of the weights when absent.
        degree: Foreign degrees, self-loop included, which GRB's reading (normalise the whole
            graph, then cut) needs; those of this graph when absent.
    """
    graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=num_nodes, dtype=dtype)
    return graph, segment_sum(graph.weight, graph) if degree is None else degree


def symmetric_weights(
    graph: Graph, degree: Float[Tensor, " n"], *, order: float = -0.5
) -> Float[Tensor, " e"]:
    """Edge weights of D^order (A + I) D^order.

    Args:
        graph: Edges of A + I.
        degree: Diagonal of D, at least 0.
        order: -0.5 for the symmetric normalisation.
    """
    scale = degree.clamp_min(1e-38).pow(order)
    return gather_src(scale, graph) * graph.weight * gather_dst(scale, graph)


def mean_weights(graph: Graph, degree: Float[Tensor, " n"]) -> Float[Tensor, " e"]:
    """Edge weights of D^-1 (A + I), a mean over the edges that arrive at a node."""
    return graph.weight * gather_dst(degree.clamp_min(1e-38).reciprocal(), graph)
