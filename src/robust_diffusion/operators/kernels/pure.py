"""Kernels in PyTorch alone, over edges sorted by destination; the interface of every backend."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.errors import DataError
from robust_diffusion.operators.graph import CompactIndexes, Graph, multiply

MAX_EXPONENT = 35.0
"""Largest exponent of an edge of weight 0, relative to the highest score of edges of other weights.

The gradient by its weight multiplies two such exponentials, one of A and one of B; their product
has to stay finite in single precision.
"""


@dataclass(frozen=True)
class Modulation:
    """Edge modulation B = softmax(g_u^left g_v^right) of a flow."""

    left: float  # exponent of the gradient norm at the destination
    right: float  # exponent of the gradient norm at the source
    residual: bool  # the gradient norm of the authors' code, |A z - z|, instead of the text's
    floor: float  # lower bound, positive; see `operators.gradient_norm`
    ceiling: float  # upper bound of the same; infinity for none


@dataclass(frozen=True, eq=False)
class Attended:
    """Attention of every edge, and the tensors that its derivative needs."""

    projected: Float[Tensor, "n 2 x y"]  # keys and queries
    weight: Float[Tensor, " e"]  # of the edges
    graph: Graph
    attention: Float[Tensor, " e"]  # mean over heads of the softmax
    relative: Float[Tensor, "..."]  # the softmax over w, per edge and head in the backend's order


@dataclass(frozen=True, eq=False)
class Diffused:
    """Values that the derivative of a modulated diffusion needs."""

    attended: Attended  # A(Z)
    z: Float[Tensor, "n d"]  # the features
    modulation: Modulation
    difference: Float[Tensor, "..."]  # |z_v - z_u|^2 per edge; under `residual` A z - z per node
    norm: Float[Tensor, " n"]  # gradient norm g
    relative: Float[Tensor, " e"]  # like that of the attention, for B


def check_sizes(graph: Graph, nodes: Sequence[Tensor], edges: Sequence[Tensor] = ()) -> None:
    """Raise a `DataError` for values of another size, whose pointers would leave the tensors."""
    for values, size in ((nodes, graph.num_nodes), (edges, graph.num_edges)):
        for value in values:
            if value.size(0) != size:
                what = "nodes" if values is nodes else "edges"
                raise DataError(f"graph: {value.size(0)} rows of values on its {size} {what}")


HARMLESS = 50.0
"""Absolute score below which no peak need be subtracted before exponentiation."""

SMALLEST_LENGTH = 1e-12
"""Smallest divisor of a vector, as in `torch.nn.functional.normalize`."""

CHUNK = 4096
"""Number of edges whose features are in memory at once; they fit into the processor's cache."""


Tensors = Sequence[Tensor]


class Kernels:
    """Sums over edges by PyTorch's sparse operators, without autograd; other backends inherit.

    All tensors are contiguous. Nodes have `z`, `x`, `y` and gradients [n, d], and `projected`
    [n, 2, h, c], the keys and queries of h heads; edges have `weight` [e] and `scores` [e, h].
    `with_weight` requests the gradient by the weights, too.

    Heads are copies of the graph in one batch, so that one call computes all of them. In an
    unweighted graph `None` replaces the weights, and nothing is multiplied by 1.
    """

    name = "torch"
    heads_last = False
    """Order of the indices of projections: [n, 2, c, h] if true."""

    def dots(self, x: Tensor, y: Tensor, graph: Graph) -> Tensor:
        """Return <x_u, y_v> of every edge v -> u, [e]."""
        return dots(x, y, graph.indexes.compact())

    def softmax(self, scores: Tensor, weight: Tensor, graph: Graph) -> Tensor:
        """Return exp(s) / sum of w exp(s) over the edges that arrive at a node: softmax over w."""
        weights = None if graph.unweighted else weight[:, None]
        return _normalize(scores.clone(), weights, graph.indexes.compact())

    def attend(self, projected: Tensor, weight: Tensor, graph: Graph) -> Attended:
        """Return the mean over heads of the softmax of <key_u, query_v> / sqrt(c).

        `relative` is in blocks of e edges, one per head.
        """
        heads, width = projected.shape[2:]
        indexes = graph.indexes.compact(heads)
        keys, queries = _by_head(projected)
        scores = dots(keys, queries, indexes, scale=1 / math.sqrt(width))
        relative = _normalize(scores, _repeated(weight, heads, graph), indexes)
        attention = relative.view(heads, -1).mean(0)
        attention = attention if graph.unweighted else attention.mul_(weight)
        return Attended(projected, weight, graph, attention, relative)

    def attend_backward(
        self, grad: Tensor, attended: Attended, *, with_weight: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradients by the projections and by the weights."""
        projected, weight, graph = attended.projected, attended.weight, attended.graph
        heads, width = projected.shape[2:]
        indexes = graph.indexes.compact(heads)
        keys, queries = _by_head(projected)
        weights = _repeated(weight, heads, graph)
        along = attended.relative.view(heads, -1) * (grad / heads)
        centred = _centred(attended.relative, along.flatten(), weights, indexes)
        d_weight = centred.view(heads, -1).sum(0) if with_weight else None
        d_scores = _weighted(centred, weights).mul_(1 / math.sqrt(width))
        d_projected = torch.empty_like(projected)
        by_key = multiply(d_scores, queries, indexes)
        by_query = multiply(d_scores, keys, indexes, transposed=True)
        for side, gradient in enumerate((by_key, by_query)):
            d_projected[:, side] = gradient.view(heads, -1, width).transpose(0, 1)
        return d_projected, d_weight

    def diffuse(
        self, z: Tensor, projected: Tensor, weight: Tensor, graph: Graph, modulation: Modulation
    ) -> tuple[Tensor, Diffused]:
        """Return the sum over v of A_uv B_uv (z_v - z_u), [n, d], and values for its derivative."""
        indexes = graph.indexes.compact()
        weights = None if graph.unweighted else weight
        attended = self.attend(projected, weight, graph)
        attention = attended.attention
        if modulation.residual:
            difference = multiply(attention, z, indexes).sub_(z)
            squared = difference.square().clamp_(modulation.floor, modulation.ceiling).sum(1)
        else:
            difference = squared_distances(z, indexes)
            squared = _row_sum(attention * difference, indexes)
            squared = squared.add_(modulation.floor).clamp_max_(modulation.ceiling)
        norm = squared.sqrt_()
        relative = _normalize(_modulation_scores(norm, modulation, indexes), weights, indexes)
        flow = _weighted(attention * relative, _emphasis(weights))
        out = multiply(flow, z, indexes)
        out.addcmul_(_row_sum(flow, indexes)[:, None], z, value=-1)
        return out, Diffused(attended, z, modulation, difference, norm, relative)

    def diffuse_backward(
        self, grad: Tensor, diffused: Diffused, *, with_weight: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the gradients by the features, by the projections and by the weights."""
        z, modulation, norm = diffused.z, diffused.modulation, diffused.norm
        attention, weight = diffused.attended.attention, diffused.attended.weight
        graph = diffused.attended.graph
        indexes = graph.indexes.compact()
        weights = None if graph.unweighted else weight
        emphasis = _emphasis(weights)
        softmax = _weighted(diffused.relative, emphasis)
        flow = attention * softmax
        # Through the diffusion.
        d_flow = dots(grad, z, indexes).sub_((grad * z).sum(1).index_select(0, indexes.dst))
        # Nothing flows along a loop. Rounding would leave more than 0, and its factor can be huge:
        # e^70 for the weight of an edge of weight 0.
        is_loop = indexes.src == indexes.dst
        d_flow.masked_fill_(is_loop, 0.0)
        d_z = multiply(flow, grad, indexes, transposed=True)
        d_z.addcmul_(_row_sum(flow, indexes)[:, None], grad, value=-1)
        d_attention = d_flow * softmax
        # Through the softmax of B, the powers of g, and its square root: d_squared is twice the
        # gradient by g^2.
        along = diffused.relative * d_flow.mul_(attention)
        mean = _row_sum(_weighted(along, emphasis), indexes).index_select(0, indexes.dst)
        share = None if weights is None else weights.clamp_max(1)
        centred = torch.addcmul(along, _weighted(diffused.relative, share), mean, value=-1)
        d_norm = _norm_gradient(_weighted(centred, emphasis), norm, modulation, indexes)
        d_squared = d_norm.div_(norm)
        if modulation.residual:
            squared = diffused.difference.square()
            inside = squared == squared.clamp(modulation.floor, modulation.ceiling)
            d_residual = diffused.difference * inside * d_squared[:, None]
            d_attention += dots(d_residual, z, indexes)
            d_z += multiply(attention, d_residual, indexes, transposed=True).sub_(d_residual)
        else:
            highest = norm.new_full((), modulation.ceiling).sqrt_()  # rounded like the norm
            d_squared.masked_fill_(norm >= highest, 0.0)
            by_edge = d_squared.index_select(0, indexes.dst)
            d_attention.addcmul_(by_edge, diffused.difference, value=0.5)
            by_edge.mul_(attention).masked_fill_(is_loop, 0.0)
            d_z += _distance_gradient(by_edge, z, indexes)
        gradients = self.attend_backward(d_attention, diffused.attended, with_weight=with_weight)
        d_projected, d_weight = gradients
        if d_weight is not None:
            d_weight += torch.where(weight > 1, centred, -diffused.relative * mean)
        return d_z, d_projected, d_weight

    def spectral(
        self, matrices: Tensors, left: Tensors, right: Tensors, *, iterate: bool
    ) -> tuple[Tensor, Tensor]:
        """Return matrices divided by their largest singular values, and these values [k].

        `left` and `right`, [a] and [d] each, estimate the singular vectors; with `iterate` one step
        of the power iteration improves them first, in place.
        """
        lengths = []
        for matrix, u, v in zip(matrices, left, right, strict=True):
            if iterate:
                _to_unit_length(torch.mv(matrix, v, out=u))
                # With v = W^T u / |W^T u|, u^T W v is the length of W^T u.
                lengths.append(_to_unit_length(torch.mv(matrix.T, u, out=v)))
            else:
                lengths.append(torch.dot(u, torch.mv(matrix, v)))
        normalized = [matrix / length for matrix, length in zip(matrices, lengths, strict=True)]
        return torch.stack(normalized), torch.stack(lengths)

    def spectral_backward(
        self, grad: Tensor, normalized: Tensor, left: Tensor, right: Tensor, sigma: Tensor
    ) -> Tensor:
        """Return the gradients by the matrices, the singular vectors taken as constants."""
        along = (grad * normalized).sum((1, 2))
        outer = left[:, :, None] * (along[:, None] * right)[:, None, :]
        gradient: Tensor = (grad - outer).div_(sigma[:, None, None])
        return gradient


def _to_unit_length(vector: Tensor) -> Tensor:
    """Divide a vector by its length; return the length."""
    length: Tensor = torch.linalg.vector_norm(vector)
    vector.div_(length.clamp_min(SMALLEST_LENGTH))
    return length


def _by_head(projected: Tensor) -> tuple[Tensor, Tensor]:
    """Return the keys and queries as features of the graph's copies, one per head."""
    keys, queries = projected.permute(1, 2, 0, 3).contiguous().flatten(1, 2)
    return keys, queries


def _repeated(weight: Tensor, heads: int, graph: Graph) -> Tensor | None:
    return None if graph.unweighted else weight.repeat(heads)


def _weighted(values: Tensor, weight: Tensor | None) -> Tensor:
    return values if weight is None else values * weight


def _emphasis(weight: Tensor | None) -> Tensor | None:
    """Return the weights in the numerator of B, at least 1."""
    return None if weight is None else weight.clamp_min(1)


def _distance_gradient(grad: Tensor, z: Tensor, indexes: CompactIndexes) -> Tensor:
    """Return half the gradient by z of the sum of grad |z_v - z_u|^2."""
    degree = _row_sum(grad, indexes) + _row_sum(grad, indexes, transposed=True)
    neighbours = multiply(grad, z, indexes)
    neighbours += multiply(grad, z, indexes, transposed=True)
    return neighbours.neg_().addcmul_(degree[:, None], z)


def _normalize(scores: Tensor, weight: Tensor | None, indexes: CompactIndexes) -> Tensor:
    """Turn scores in place into exp(s) / sum of w exp(s)."""
    if weight is None:
        if not _harmless(scores):
            scores.sub_(_row_max(scores, indexes).index_select(0, indexes.dst))
        scale = _row_sum(scores.exp_(), indexes).reciprocal_()
    else:
        peak = _row_max(scores.masked_fill(weight == 0, -torch.inf), indexes)
        scores.sub_(peak.index_select(0, indexes.dst)).clamp_max_(MAX_EXPONENT).exp_()
        total = _row_sum(weight * scores, indexes)
        scale = (total != 0) / total.clamp_min_(torch.finfo(scores.dtype).tiny)
    return scores.mul_(scale.index_select(0, indexes.dst))


def _harmless(scores: Tensor) -> bool:
    """Return whether no exponential overflows or vanishes, so that no peak need be computed.

    On a GPU, the check would take longer than computing the peaks.
    """
    if scores.device.type != "cpu" or scores.numel() == 0:
        return False
    low, high = torch.aminmax(scores)
    return low.item() > -HARMLESS and high.item() < HARMLESS


def _centred(
    relative: Tensor, along: Tensor, weight: Tensor | None, indexes: CompactIndexes
) -> Tensor:
    """Return a softmax's gradient by its scores, over w; `along` is relative times its gradient."""
    mean = _row_sum(_weighted(along, weight), indexes)
    return torch.addcmul(along, relative, mean.index_select(0, indexes.dst), value=-1)


def _modulation_scores(norm: Tensor, modulation: Modulation, indexes: CompactIndexes) -> Tensor:
    scores = norm.pow(modulation.right).index_select(0, indexes.src)
    if modulation.left == 0:
        return scores
    return scores.mul_(norm.pow(modulation.left).index_select(0, indexes.dst))


def _norm_gradient(
    d_scores: Tensor, norm: Tensor, modulation: Modulation, indexes: CompactIndexes
) -> Tensor:
    """Return the gradient by g of scores g_u^left g_v^right."""
    left, right = norm.pow(modulation.left), norm.pow(modulation.right)
    by_right = _row_sum(d_scores * left.index_select(0, indexes.dst), indexes, transposed=True)
    d_norm = by_right.mul_(right).mul_(modulation.right)
    if modulation.left != 0:
        by_left = _row_sum(d_scores * right.index_select(0, indexes.src), indexes)
        d_norm.add_(by_left.mul_(left), alpha=modulation.left)
    return d_norm.div_(norm)


def _row_sum(values: Tensor, indexes: CompactIndexes, *, transposed: bool = False) -> Tensor:
    """Sum over the edges that arrive at each node, or over those that leave it."""
    if transposed:
        values = values.index_select(0, indexes.order_by_source)
    pointers = indexes.colptr if transposed else indexes.rowptr
    return torch.segment_reduce(values, "sum", offsets=pointers, unsafe=True)


def _row_max(values: Tensor, indexes: CompactIndexes) -> Tensor:
    """Return the largest value of the edges that arrive at each node; -infinity where none does."""
    return torch.segment_reduce(
        values, "max", offsets=indexes.rowptr, initial=-torch.inf, unsafe=True
    )


def dots(x: Tensor, y: Tensor, indexes: CompactIndexes, *, scale: float = 1.0) -> Tensor:
    """Return `scale` times <x_u, y_v> of every edge v -> u."""
    if x.device.type != "cpu":
        product = x.index_select(0, indexes.dst).mul_(y.index_select(0, indexes.src))
        return product.sum(1).mul_(scale)
    # On narrow features that are not a multiple of 8, sampled_addmm is several times slower.
    if padding := -x.size(1) % 8:
        x, y = F.pad(x, (0, padding)), F.pad(y, (0, padding))
    pattern = _pattern(indexes, x.dtype)
    products: Tensor = torch.sparse.sampled_addmm(pattern, x, y.T, beta=0.0, alpha=scale).values()
    return products


def _pattern(indexes: CompactIndexes, dtype: torch.dtype) -> Tensor:
    """Return a sparse matrix of this structure, its entries 0."""
    if dtype not in indexes.patterns:
        n = indexes.rowptr.numel() - 1
        zeros = torch.zeros(indexes.src.numel(), dtype=dtype, device=indexes.src.device)
        with torch.inference_mode(mode=False), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse")  # in beta, and unchecked
            indexes.patterns[dtype] = torch.sparse_csr_tensor(
                indexes.rowptr, indexes.src, zeros, (n, n), check_invariants=False
            )
    return indexes.patterns[dtype]


def squared_distances(z: Tensor, indexes: CompactIndexes) -> Tensor:
    """Return |z_v - z_u|^2; it is not expanded, which would cancel where z is smooth."""
    if z.device.type != "cpu":
        difference = z.index_select(0, indexes.src).sub_(z.index_select(0, indexes.dst))
        return difference.square_().sum(1)
    # z_v - z_u as a sum over two entries, of weights 1 and -1: one operator instead of three, in
    # chunks that stay in the cache.
    pointers, signs = _pairs(z.dtype, z.device)
    distances = z.new_empty(indexes.src.numel())
    for first in range(0, distances.numel(), CHUNK):
        out = distances[first : first + CHUNK]
        ends = indexes.ends[2 * first : 2 * (first + CHUNK)]
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
def _pairs(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(mode=False):
        pointers = torch.arange(0, 2 * CHUNK + 1, 2, dtype=torch.int32, device=device)
        return pointers, torch.tensor([1.0, -1.0], dtype=dtype, device=device).repeat(CHUNK)
