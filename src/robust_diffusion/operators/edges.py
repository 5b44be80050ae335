"""Functions of the two ends of an edge, each with the backward pass written out.

Autograd would save tensors of e x d entries for each of them, and scatter gradients back with
atomic adds. Written out, the gradients are sparse products over sorted edges.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from robust_diffusion.operators.graph import (
    EdgeValues,
    Graph,
    NodeSignal,
    gather_dst,
    gather_src,
    multiply,
    row_max,
    row_sum,
)
from robust_diffusion.operators.kernels import MAX_EXPONENT, current_backend, kernels_for

VALUES_AT_A_TIME = 2**25
"""Most features of edges' ends in memory at once: 128 MB in single precision."""


def row_softmax(scores: Float[Tensor, "e h"], graph: Graph) -> Float[Tensor, "e h"]:
    """Return the softmax over the edges that arrive at each node, weighted by the edges' weights.

    p_uv = w_uv exp(s_uv) / sum over v' of w_uv' exp(s_uv'), with w = `graph.weight`. With
    weights of 1 this is the plain softmax; a weight of 0 removes the edge exactly, and the result
    stays differentiable in the weights, which is what a topology attack needs.

    Args:
        scores: One score per edge and head.
        graph: The edges; their weights enter as above.

    Returns:
        Non-negative values that sum to 1 over the edges arriving at each node, or to 0 at a node
        that no edge of positive weight reaches.
    """
    if is_plain(scores):
        return graph.weight[:, None] * plain_softmax(scores, graph.weight, graph)
    return _RowSoftmax.apply(scores, graph.weight, graph)  # type: ignore[no-any-return, no-untyped-call]


def is_plain(tensor: Tensor) -> bool:
    """Return whether `backend=reference` is active, where autograd differentiates to any order."""
    return current_backend(tensor.device.type) == "reference"


class _RowSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, weight: Tensor, graph: Graph) -> Tensor:
        relative = relative_softmax(scores, weight, graph)
        softmax = weight[:, None] * relative
        ctx.save_for_backward(softmax, relative)
        ctx.graph = graph
        return softmax

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        softmax, relative = ctx.saved_tensors
        graph: Graph = ctx.graph
        centred = grad - gather_dst(row_sum(softmax * grad, graph), graph)
        grad_weight = (relative * centred).sum(1) if ctx.needs_input_grad[1] else None
        return softmax * centred, grad_weight, None


def relative_softmax(scores: Tensor, weight: Tensor, graph: Graph) -> Tensor:
    """Return exp(s) / sum of w exp(s) over the edges that arrive at a node, without autograd."""
    if kernels := kernels_for(scores, weight, heads=scores.size(1)):
        return kernels.softmax(scores.contiguous(), weight.contiguous(), graph)
    return plain_softmax(scores, weight, graph)


def plain_softmax(scores: Tensor, weight: Tensor, graph: Graph) -> Tensor:
    """Return exp(s) / sum of w exp(s) over the edges that arrive at a node, differentiable."""
    # The peak excludes edges of weight 0. Their scores may exceed it, which only affects the
    # gradient of their weights; the clamp keeps that finite.
    peak = row_max(scores.masked_fill(weight[:, None] == 0, -torch.inf), graph)
    exponential = torch.exp((scores - gather_dst(peak, graph)).clamp_max(MAX_EXPONENT))
    total = row_sum(weight[:, None] * exponential, graph)
    scale = (total > 0) / total.clamp_min(torch.finfo(scores.dtype).tiny)
    return exponential * gather_dst(scale, graph)


def edge_dot(
    key: Float[Tensor, "n h c"], query: Float[Tensor, "n h c"], graph: Graph
) -> Float[Tensor, "e h"]:
    """Return the dot product of the destination's key with the source's query, per head.

    s_uv = <key_u, query_v> for each edge v -> u.
    """
    if is_plain(key):
        return (gather_dst(key, graph) * gather_src(query, graph)).sum(-1)
    return _EdgeDot.apply(key, query, graph)  # type: ignore[no-any-return, no-untyped-call]


class _EdgeDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, key: Tensor, query: Tensor, graph: Graph) -> Tensor:
        ctx.save_for_backward(key, query)
        ctx.graph = graph
        if key.size(1) == 1 and (kernels := kernels_for(key, query)):
            ends = key.squeeze(1).contiguous(), query.squeeze(1).contiguous()
            return kernels.dots(*ends, graph)[:, None]
        return (gather_dst(key, graph) * gather_src(query, graph)).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        key, query = ctx.saved_tensors
        heads = [(_head(grad, h), _head(key, h), _head(query, h)) for h in range(key.size(1))]
        grad_key = [multiply(d, query, ctx.graph) for d, _, query in heads]
        grad_query = [multiply(d, key, ctx.graph, transposed=True) for d, key, _ in heads]
        return _heads(grad_key), _heads(grad_query), None


def _heads(heads: list[Tensor]) -> Tensor:
    return heads[0][:, None] if len(heads) == 1 else torch.stack(heads, 1)  # stacking copies


def _head(values: Tensor, h: int) -> Tensor:
    return values[:, h].contiguous()


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
    if is_plain(z):
        return (gather_src(z, graph) - gather_dst(z, graph)).square().sum(-1)
    return _EdgeSquaredDistance.apply(z, graph)  # type: ignore[no-any-return, no-untyped-call]


class _EdgeSquaredDistance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, graph: Graph) -> Tensor:
        ctx.save_for_backward(z)
        ctx.graph = graph
        # The difference is formed edge by edge: |u|^2 + |v|^2 - 2 <u, v> would cancel exactly
        # where the signal is smooth, and this norm is about to be divided by.
        return (gather_src(z, graph) - gather_dst(z, graph)).square_().sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        graph: Graph = ctx.graph
        degree = row_sum(grad, graph).index_add(0, graph.src, grad)
        neighbours = multiply(grad, z, graph) + multiply(grad, z, graph, transposed=True)
        return 2 * (degree[:, None] * z - neighbours), None


def spmm(
    weight: EdgeValues, z: NodeSignal, graph: Graph, *, transposed: bool = False
) -> NodeSignal:
    """Return weighted sums over incoming edges: out_u = sum over edges (v -> u) of weight_uv z_v.

    If `transposed`, sum over outgoing edges: out_v = sum over edges (v -> u) of weight_uv z_u.

    Saves for the backward pass each input that the other's gradient needs, and no tensor of e x d
    entries; the gradient with respect to `z` is the product with the transpose, over the edges
    sorted by source.
    It is 0 at a node that no edge reaches. It can be differentiated twice.
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
        return multiply(weight, z.contiguous(), graph, transposed=transposed)

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
