"""Sums over the edges that arrive at a node, values carried to edges, and weights over degrees."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from robust_diffusion.operators.graph import CompactIndexes, EdgeValues, Graph


def segment_sum(
    values: Float[Tensor, " e *channels"], graph: Graph
) -> Float[Tensor, " n *channels"]:
    """Sum edge values over the edges that arrive at each node; 0 where none does."""
    out = values.new_zeros((graph.num_nodes, *values.shape[1:]))
    return out.index_add(0, graph.dst, values)


def gather_dst(
    values: Shaped[Tensor, " n *channels"], graph: Graph
) -> Shaped[Tensor, " e *channels"]:
    """Give each edge the value of its destination: the transpose of `segment_sum`."""
    # index_select copies rows about three times as fast as indexing with a tensor does.
    return values.index_select(0, graph.dst)


def gather_src(
    values: Shaped[Tensor, " n *channels"], graph: Graph
) -> Shaped[Tensor, " e *channels"]:
    """Give each edge the value of its source."""
    return values.index_select(0, graph.src)


def segment_max(values: Float[Tensor, "e h"], graph: Graph) -> Float[Tensor, "n h"]:
    """Largest edge value arriving at each node, without gradient; -inf where none does."""
    return torch.segment_reduce(
        values.detach(), "max", offsets=graph.rowptr, axis=0, initial=-torch.inf, unsafe=True
    )


def product_over(pointers: Tensor, columns: Tensor, weight: Tensor, z: Tensor) -> Tensor:
    """CSR matrix (pointers, columns, weight) times z, without autograd.

    Where autocast has made one of a lower precision than the other, that of the other is taken.
    """
    dtype = torch.promote_types(weight.dtype, z.dtype)
    # Of tensors that ask for a gradient, embedding_bag would prepare one.
    weight, z = weight.detach().to(dtype), z.detach().to(dtype)
    # embedding_bag is torch's fastest weighted sum over segments on CPU; it needs at least one
    # entry, and on an empty graph the product is zero.
    if columns.numel() == 0:
        return z.new_zeros(pointers.numel() - 1, z.size(1))
    return F.embedding_bag(
        columns, z, pointers, mode="sum", per_sample_weights=weight, include_last_offset=True
    )


def multiply(
    value: Tensor, z: Tensor, indexes: Graph | CompactIndexes, *, transposed: bool = False
) -> Tensor:
    """Sparse matrix of these edge values, or its transpose, times z, without autograd."""
    if transposed:
        value = value.index_select(0, indexes.order_by_source)
        return product_over(indexes.colptr, indexes.dst_by_source, value, z)
    return product_over(indexes.rowptr, indexes.src, value, z)


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
