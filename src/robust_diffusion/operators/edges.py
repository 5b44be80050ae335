"""Functions of the two ends of an edge: one autograd function each, over one type of edges.

Autograd would save tensors of e x d entries for each of them, and scatter gradients back with
atomic adds. Written out, the gradients are sparse products over sorted edges. These are functions
of this module again, so that each can be differentiated any number of times.
"""

import warnings
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.operators.graph import (
    EdgeValues,
    Graph,
    NodeSignal,
    SortedEdges,
    gather_dst,
    gather_src,
    multiply,
    row_max,
    row_sum,
)
from robust_diffusion.operators.kernels import MAX_EXPONENT, kernels_for

VALUES_AT_A_TIME = 2**25
"""Most features of edges' ends in memory at once: 128 MB in single precision."""

CHUNK = 4096
"""Number of edges whose features are in memory at once; they fit into the processor's cache."""


def row_softmax(
    scores: Float[Tensor, "e h"], graph: Graph, *, relative: bool = False
) -> Float[Tensor, "e h"]:
    """Return the softmax over the edges that arrive at each node, weighted by the edges' weights.

    p_uv = w_uv exp(s_uv) / sum over v' of w_uv' exp(s_uv'), with w = `graph.weight`. With
    weights of 1 this is the plain softmax; a weight of 0 removes the edge exactly, and the result
    stays differentiable in the weights, which is what a topology attack needs.

    Args:
        scores: One score per edge and head.
        graph: The edges; their weights enter as above.
        relative: Return p / w, without the weight in the numerator.

    Returns:
        Non-negative values that sum to 1 over the edges arriving at each node, or to 0 at a node
        that no edge of positive weight reaches.
    """
    softmax, over_weight = _RowSoftmax.apply(scores, graph.weight, graph)  # type: ignore[no-untyped-call]
    return over_weight if relative and graph.weight is not None else softmax  # type: ignore[no-any-return]


class _RowSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, weight: Tensor | None, graph: Graph
    ) -> tuple[Tensor, Tensor | None]:
        over_weight = _softmax_over_weight(scores, graph)
        ctx.save_for_backward(over_weight, weight)
        ctx.graph = graph
        ctx.set_materialize_grads(False)
        if weight is None:
            return over_weight, None
        return weight[:, None] * over_weight, over_weight

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, grad_over_weight: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, None]:
        over_weight, weight = ctx.saved_tensors
        softmax = over_weight if weight is None else weight[:, None] * over_weight
        graph: Graph = ctx.graph
        grad_scores = grad_weight = None
        if grad is not None:
            centred = grad - gather_dst(row_sum(softmax * grad, graph), graph)
            grad_scores = softmax * centred
            if ctx.needs_input_grad[1]:
                grad_weight = (over_weight * centred).sum(1)
        if grad_over_weight is not None:
            along = over_weight * grad_over_weight
            mean = gather_dst(row_sum(along, graph), graph)
            by_scores, by_weight = along - softmax * mean, -(over_weight * mean).sum(1)
            grad_scores = by_scores if grad_scores is None else grad_scores + by_scores
            grad_weight = by_weight if grad_weight is None else grad_weight + by_weight
        return grad_scores, grad_weight, None


def _softmax_over_weight(scores: Tensor, graph: Graph) -> Tensor:
    """Return exp(s) / sum of w exp(s) over the edges that arrive at a node, without autograd."""
    if kernels := kernels_for(scores, graph.full_weight, heads=scores.size(1)):
        return kernels.softmax(scores.contiguous(), graph.full_weight.contiguous(), graph)
    weight = None if graph.weight is None else graph.weight[:, None]
    # The peak excludes edges of weight 0. Their scores may exceed it, which only affects the
    # gradient of their weights; the clamp keeps that finite.
    peak = row_max(scores if weight is None else scores.masked_fill(weight == 0, -torch.inf), graph)
    exponential = (scores - gather_dst(peak, graph)).clamp_max_(MAX_EXPONENT).exp_()
    total = row_sum(exponential if weight is None else weight * exponential, graph)
    scale = (total > 0) / total.clamp_min(torch.finfo(total.dtype).tiny)
    return exponential * gather_dst(scale, graph)


def edge_dot(
    key: Float[Tensor, "n h c"], query: Float[Tensor, "n h c"], graph: Graph
) -> Float[Tensor, "e h"]:
    """Return the dot product of the destination's key with the source's query, per head.

    s_uv = <key_u, query_v> for each edge v -> u.
    """
    return _EdgeDot.apply(key, query, graph)  # type: ignore[no-any-return, no-untyped-call]


class _EdgeDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, key: Tensor, query: Tensor, graph: Graph) -> Tensor:
        ctx.save_for_backward(key, query)
        ctx.graph = graph
        return _dots(key, query, graph)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        key, query = ctx.saved_tensors
        graph, grads, grad_key, grad_query = ctx.graph, _by_head(grad), None, None
        if ctx.needs_input_grad[0]:
            ends = zip(grads, _by_head(query), strict=True)
            grad_key = _together([spmm(d, y, graph) for d, y in ends])
        if ctx.needs_input_grad[1]:
            ends = zip(grads, _by_head(key), strict=True)
            grad_query = _together([spmm(d, x, graph, transposed=True) for d, x in ends])
        return grad_key, grad_query, None


def _by_head(values: Tensor) -> list[Tensor]:
    return [head.contiguous() for head in values.unbind(1)]


def _together(heads: list[Tensor]) -> Tensor:
    return heads[0][:, None] if len(heads) == 1 else torch.stack(heads, 1)  # stacking copies


def _dots(key: Tensor, query: Tensor, graph: Graph) -> Tensor:
    """Return <key_u, query_v> of every edge v -> u and head, without autograd."""
    kernels = kernels_for(key, query)
    # sampled_addmm takes no more entries than the matrix has places; duplicate edges can exceed it.
    fits = graph.num_edges <= graph.num_nodes**2 and key.dtype == query.dtype
    if kernels is None and not (fits and _is_plain(key)):
        return (gather_dst(key, graph) * gather_src(query, graph)).sum(-1)
    dots = _sampled if kernels is None else kernels.dots
    ends = zip(_by_head(key), _by_head(query), strict=True)
    return _together([dots(x, y, graph) for x, y in ends])


def _sampled(x: Tensor, y: Tensor, graph: Graph) -> Tensor:
    # On narrow features that are not a multiple of 8, sampled_addmm is several times slower.
    if padding := -x.size(1) % 8:
        x, y = F.pad(x, (0, padding)), F.pad(y, (0, padding))
    pattern = graph.edges.cached(("pattern", x.dtype), lambda: _pattern(graph.edges, x.dtype))
    products: Tensor = torch.sparse.sampled_addmm(pattern, x, y.T, beta=0.0).values()
    return products


def _is_plain(x: Tensor) -> bool:
    """Return whether PyTorch's sparse operators on the CPU compute with such numbers."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)


def _pattern(edges: SortedEdges, dtype: torch.dtype) -> Tensor:
    """Return a sparse matrix of these edges, its entries 0."""
    zeros = torch.zeros(edges.sources.numel(), dtype=dtype)
    indexes, shape = (edges.rowptr, edges.sources), (edges.num_nodes, edges.num_nodes)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # in beta, and unchecked
        return torch.sparse_csr_tensor(*indexes, zeros, shape, check_invariants=False)


def edge_cosine(z: NodeSignal, graph: Graph) -> EdgeValues:
    """Return the cosine between the features at both ends of each edge; 0 for zero features."""
    unit = (z * inverse_length(z.square().sum(1)))[:, None]
    # Some columns at a time: features at both ends of every edge would not fit into memory.
    columns = max(16, VALUES_AT_A_TIME // max(1, graph.num_edges))
    parts = [edge_dot(part, part, graph) for part in torch.split(unit, columns, dim=2)]
    return torch.stack(parts).sum(0).squeeze(1)


def inverse_length(squared: Float[Tensor, " n"]) -> Float[Tensor, "n 1"]:
    """Return 1 / length from the squared length of vectors; 0 for a length of 0."""
    positive = squared > torch.finfo(squared.dtype).tiny
    # The inner `where` keeps the gradient of features that are all 0 finite: it is 0.
    inverse = torch.where(positive, torch.where(positive, squared, 1.0).rsqrt(), 0.0)
    return inverse[:, None]


def edge_squared_distance(z: NodeSignal, graph: Graph) -> EdgeValues:
    """Return the squared Euclidean distance between the ends of each edge, |z_v - z_u|^2."""
    return _EdgeSquaredDistance.apply(z, graph)  # type: ignore[no-any-return, no-untyped-call]


class _EdgeSquaredDistance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, graph: Graph) -> Tensor:
        ctx.save_for_backward(z)
        ctx.graph = graph
        return _squared_distances(z.contiguous(), graph)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        graph: Graph = ctx.graph
        degree = row_sum(grad, graph).index_add(0, graph.src, grad)
        neighbours = spmm(grad, z, graph) + spmm(grad, z, graph, transposed=True)
        return 2 * (degree[:, None] * z - neighbours), None


def _squared_distances(z: Tensor, graph: Graph) -> Tensor:
    """Return |z_v - z_u|^2, without autograd.

    The difference is formed edge by edge: |u|^2 + |v|^2 - 2 <u, v> would cancel exactly where the
    signal is smooth, and this norm is about to be divided by.
    """
    if not _is_plain(z):
        return (gather_src(z, graph) - gather_dst(z, graph)).square_().sum(1)
    # z_v - z_u as a sum over two entries, of weights 1 and -1: one operator instead of three, in
    # chunks that stay in the cache.
    pointers, signs = _pairs(z.dtype)
    distances = z.new_empty(graph.num_edges)
    for first in range(0, distances.numel(), CHUNK):
        out = distances[first : first + CHUNK]
        ends = graph.edges.ends[2 * first : 2 * (first + CHUNK)]
        difference = F.embedding_bag(
            ends,
            z,
            pointers[: out.numel() + 1],
            mode="sum",
            per_sample_weights=signs[: ends.numel()],
            include_last_offset=True,
        )
        torch.sum(difference.square_(), 1, out=out)
    return distances


@cache
def _pairs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(mode=False):
        pointers = torch.arange(0, 2 * CHUNK + 1, 2, dtype=torch.int32)
        return pointers, torch.tensor([1.0, -1.0], dtype=dtype).repeat(CHUNK)


def spmm(
    weight: EdgeValues, z: NodeSignal, graph: Graph, *, transposed: bool = False
) -> NodeSignal:
    """Return weighted sums over incoming edges: out_u = sum over edges (v -> u) of weight_uv z_v.

    If `transposed`, sum over outgoing edges: out_v = sum over edges (v -> u) of weight_uv z_u.

    Saves for the backward pass each input that the other's gradient needs, and no tensor of e x d
    entries; the gradient with respect to `z` is the product with the transpose, over the edges
    sorted by source.
    It is 0 at a node that no edge reaches.
    """
    return _SpMM.apply(weight, z, graph, transposed)  # type: ignore[no-any-return, no-untyped-call]


class _SpMM(torch.autograd.Function):
    """The product with the matrix of the edges, or with its transpose."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, z: Tensor, graph: Graph, transposed: bool) -> Tensor:
        of_weight, of_z, *_ = ctx.needs_input_grad
        # The features of a large graph are saved only if the weights require a gradient.
        ctx.save_for_backward(weight if of_z else None, z if of_weight else None)
        ctx.graph, ctx.transposed = graph, transposed
        return multiply(weight, z.contiguous(), graph.edges, transposed=transposed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        weight, z = ctx.saved_tensors
        grad_weight = grad_z = None
        if ctx.needs_input_grad[0]:
            at_dst, at_src = (z, grad) if ctx.transposed else (grad, z)
            grad_weight = edge_dot(at_dst[:, None], at_src[:, None], ctx.graph).squeeze(1)
        if ctx.needs_input_grad[1]:
            grad_z = _SpMM.apply(weight, grad, ctx.graph, not ctx.transposed)  # type: ignore[no-untyped-call]
        return grad_weight, grad_z, None, None
