"""Kernels in Triton, for CUDA devices; imported only when the Triton backend is used.

One program sums one row of the graph, in blocks of edges, so that each value is written once and
always summed in the same order. u is the destination and v the source of an edge e, w its weight,
and d_x the gradient of the loss by x. Upper-case arguments are known when a kernel is compiled:
numbers, since Triton passes others in single precision; the kind of gradient norm, NORM (0 without
modulation, 1 over edges, 2 the residual); and sizes of blocks, E of edges, H of heads, C of
channels per head, D of all channels, R of a matrix's rows.
"""

import math
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from robust_diffusion.operators.graph import Graph, SortedEdges
from robust_diffusion.operators.kernels.base import (
    MAX_EXPONENT,
    SMALLEST_LENGTH,
    Attended,
    Diffused,
    Kernels,
    Modulation,
    Tensors,
    check_sizes,
)

HIGHEST = tl.constexpr(MAX_EXPONENT)
SHORTEST = tl.constexpr(SMALLEST_LENGTH)
LOWEST = tl.constexpr(-math.inf)

MOST_EDGES = 16
MOST_VALUES = 4096
"""Edges, and values of them, that a program holds in registers at once."""


@triton.jit
@no_type_check
def _row(pointers):
    """Return the program's row, as a block of one, and where its edges begin and end."""
    u = tl.program_id(0).to(tl.int64)
    return u + tl.arange(0, 1), tl.load(pointers + u), tl.load(pointers + u + 1)


@triton.jit
@no_type_check
def _block(first, end, E: tl.constexpr):
    """Return the entries of a block, and a mask of those that exist."""
    e = first + tl.arange(0, E)
    return e.to(tl.int64), e < end


@triton.jit
@no_type_check
def _places(rows, there, width, B: tl.constexpr, skip=0):
    """Return where rows of `width` numbers lie, and a mask."""
    column = skip + tl.arange(0, B)[None, :]
    return rows[:, None] * width + column, there[:, None] & (column < width)


@triton.jit
@no_type_check
def _load(x, rows, there, width, B: tl.constexpr, skip=0):
    at, mask = _places(rows, there, width, B, skip)
    return tl.load(x + at, mask, 0.0)


@triton.jit
@no_type_check
def _sides(rows, there, side, sides, heads, width, H: tl.constexpr, C: tl.constexpr):
    """Return where one side of nodes lies, and a mask: keys are the first, queries the last."""
    h, c = tl.arange(0, H)[None, :, None], tl.arange(0, C)[None, None, :]
    at = ((rows[:, None, None] * sides + side) * heads + h) * width + c
    return at, there[:, None, None] & (h < heads) & (c < width)


@triton.jit
@no_type_check
def _keys(projected, bias, rows, there, sides, heads, width, H: tl.constexpr, C: tl.constexpr):
    at, mask = _sides(rows, there, 0, sides, heads, width, H, C)
    keys = tl.load(projected + at, mask, 0.0)
    if bias is not None:
        h, c = tl.arange(0, H)[None, :, None], tl.arange(0, C)[None, None, :]
        keys += tl.load(bias + h * width + c, (h < heads) & (c < width), 0.0)
    return keys


@triton.jit
@no_type_check
def _queries(projected, rows, there, sides, heads, width, H: tl.constexpr, C: tl.constexpr):
    at, mask = _sides(rows, there, sides - 1, sides, heads, width, H, C)
    return tl.load(projected + at, mask, 0.0)


@triton.jit
@no_type_check
def _power(x, P: tl.constexpr):
    return 1.0 / x if P == -1 else tl.exp(P * tl.log(x))


@triton.jit
@no_type_check
def _clamp(x, LOW: tl.constexpr, HIGH: tl.constexpr):
    x = tl.where(x < LOW, tl.full(x.shape, LOW, x.dtype), x)
    return tl.where(x > HIGH, tl.full(x.shape, HIGH, x.dtype), x)


@triton.jit
@no_type_check
def _inside(residual, FLOOR: tl.constexpr, CEILING: tl.constexpr):
    """Return a residual, 0 where its square is outside the bounds."""
    squared = residual * residual
    return tl.where(squared == _clamp(squared, FLOOR, CEILING), residual, 0.0)


@triton.jit
@no_type_check
def _add_to_softmax(peak, total, scores, w, there):
    """Return the largest score so far, and the sum of w exp(s) relative to it."""
    counts = (there & (w != 0))[:, None]
    highest = tl.maximum(peak, tl.max(tl.where(counts, scores, LOWEST), 0))
    base = tl.where(highest == LOWEST, 0.0, highest)
    added = tl.where(counts, w[:, None] * tl.exp(scores - base[None, :]), 0.0)
    return highest, total * tl.exp(peak - base) + tl.sum(added, 0)


@triton.jit
@no_type_check
def _softmax(scores, peak, total, TINY: tl.constexpr):
    """Return exp(s) / sum of w exp(s). Comparisons, unlike minima, let NaN through."""
    scale = tl.where(total == 0, 0.0, 1.0 / tl.where(total < TINY, TINY, total))
    exponent = scores - tl.where(peak == LOWEST, 0.0, peak)[None, :]
    return tl.exp(tl.where(exponent > HIGHEST, HIGHEST, exponent)) * scale[None, :]


@triton.jit
@no_type_check
def _dots(rowptr, src, x, y, out, channels, E: tl.constexpr, D: tl.constexpr):
    u, begin, end = _row(rowptr)
    for first in range(begin, end, E):
        e, there = _block(first, end, E)
        v = tl.load(src + e, there, 0).to(tl.int64)
        total = tl.zeros([E], x.dtype.element_ty)
        for skip in range(0, channels, D):  # features of the data can have thousands
            x_u = _load(x, u, u >= 0, channels, D, skip)
            total += tl.sum(x_u * _load(y, v, there, channels, D, skip), 1)
        tl.store(out + e, total, there)


@triton.jit
@no_type_check
def _softmax_rows(
    rowptr, scores, weight, relative, heads, TINY: tl.constexpr, E: tl.constexpr, H: tl.constexpr
):
    _, begin, end = _row(rowptr)
    total = tl.zeros([H], weight.dtype.element_ty)
    peak = total + LOWEST
    for first in range(begin, end, E):
        e, there = _block(first, end, E)
        w = tl.load(weight + e, there, 0.0)
        peak, total = _add_to_softmax(peak, total, _load(scores, e, there, heads, H), w, there)
    for first in range(begin, end, E):
        e, there = _block(first, end, E)
        at, mask = _places(e, there, heads, H)
        softmax = _softmax(tl.load(scores + at, mask, 0.0), peak, total, TINY)
        tl.store(relative + at, softmax, mask)


# fmt: off
@triton.jit
@no_type_check
def _attend(
    rowptr, src, weight, projected, bias, sides, heads, width, z, channels,
    relative, attention, difference, norm,
    SCALE: tl.constexpr, FLOOR: tl.constexpr, CEILING: tl.constexpr, ROOT: tl.constexpr,
    TINY: tl.constexpr, NORM: tl.constexpr,
    E: tl.constexpr, H: tl.constexpr, C: tl.constexpr, D: tl.constexpr,
):
    """Compute the attention of a row, and its gradient norm."""
    u, begin, end = _row(rowptr)
    key = _keys(projected, bias, u, u >= 0, sides, heads, width, H, C) * SCALE
    total = tl.zeros([H], weight.dtype.element_ty)
    peak = total + LOWEST
    for first in range(begin, end, E):
        e, there = _block(first, end, E)
        v = tl.load(src + e, there, 0).to(tl.int64)
        scores = tl.sum(key * _queries(projected, v, there, sides, heads, width, H, C), 2)
        at, mask = _places(e, there, heads, H)
        tl.store(relative + at, scores, mask)
        w = tl.load(weight + e, there, 0.0)
        peak, total = _add_to_softmax(peak, total, scores, w, there)
    tl.debug_barrier()  # other threads of the program read the scores
    squared = tl.zeros([E], weight.dtype.element_ty)
    mean = tl.zeros([D], weight.dtype.element_ty)
    if NORM != 0:
        z_u = _load(z, u, u >= 0, channels, D)
    for first in range(begin, end, E):
        e, there = _block(first, end, E)
        at, mask = _places(e, there, heads, H)
        softmax = _softmax(tl.load(relative + at, mask, 0.0), peak, total, TINY)
        tl.store(relative + at, softmax, mask)
        a = tl.load(weight + e, there, 0.0) * tl.sum(tl.where(mask, softmax, 0.0), 1) / heads
        tl.store(attention + e, a, there)
        if NORM != 0:
            z_v = _load(z, tl.load(src + e, there, 0).to(tl.int64), there, channels, D)
            if NORM == 1:
                apart = tl.sum((z_v - z_u) * (z_v - z_u), 1)
                tl.store(difference + e, apart, there)
                squared += a * apart
            else:
                mean += tl.sum(a[:, None] * z_v, 0)
    if NORM == 1:
        g2 = tl.sum(squared, 0) + FLOOR
        g = tl.where(g2 > CEILING, tl.full([1], ROOT, g2.dtype), tl.sqrt(g2))
        tl.store(norm + u, g)
    if NORM == 2:
        at, mask = _places(u, u >= 0, channels, D)
        residual = mean[None, :] - z_u
        tl.store(difference + at, residual, mask)
        g2 = tl.where(mask, _clamp(residual * residual, FLOOR, CEILING), 0.0)
        tl.store(norm + u, tl.sqrt(tl.sum(g2, 1)))


@triton.jit
@no_type_check
def _diffuse(
    rowptr, src, weight, z, channels, attention, norm, modulation, out,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, TINY: tl.constexpr, E: tl.constexpr, D: tl.constexpr,
):
    """Compute the softmax of B, and the flow along A B."""
    u, begin, end = _row(rowptr)
    left = _power(tl.load(norm + u), LEFT)
    z_u = _load(z, u, u >= 0, channels, D)
    total = tl.zeros([1], weight.dtype.element_ty)
    peak = total + LOWEST
    for first in range(begin, end, E):
        e, there = _block(first, end, E)
        g = tl.load(norm + tl.load(src + e, there, 0), there, 1.0)
        w = tl.load(weight + e, there, 0.0)
        peak, total = _add_to_softmax(peak, total, (left * _power(g, RIGHT))[:, None], w, there)
    flow = tl.zeros([D], weight.dtype.element_ty)
    for first in range(begin, end, E):
        e, there = _block(first, end, E)
        v = tl.load(src + e, there, 0).to(tl.int64)
        scores = left * _power(tl.load(norm + v, there, 1.0), RIGHT)
        softmax = tl.sum(_softmax(scores[:, None], peak, total, TINY), 1)
        tl.store(modulation + e, softmax, there)
        w = tl.load(weight + e, there, 0.0)
        along = tl.load(attention + e, there, 0.0) * tl.where(w > 1, w, 1.0) * softmax
        flow += tl.sum(along[:, None] * (_load(z, v, there, channels, D) - z_u), 0)
    at, mask = _places(u, u >= 0, channels, D)
    tl.store(out + at, flow[None, :], mask)


@triton.jit
@no_type_check
def _diffuse_backward(
    rowptr, src, weight, z, channels, attention, norm, modulation, d_out,
    flow, inflow, d_z, d_attention, d_modulation, d_norm, d_weight,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, E: tl.constexpr, D: tl.constexpr,
):
    """Compute gradients by A and by the scores of B; store the sum of A (z_v - z_u) in d_z."""
    u, begin, end = _row(rowptr)
    at, mask = _places(u, u >= 0, channels, D)
    z_u, d_out_u = tl.load(z + at, mask, 0.0), tl.load(d_out + at, mask, 0.0)
    along_a = tl.zeros([D], weight.dtype.element_ty)
    total = tl.zeros([E], weight.dtype.element_ty)
    mean, by_left = total, total
    for first in range(begin, end, E):
        e, there = _block(first, end, E)
        apart = _load(z, tl.load(src + e, there, 0).to(tl.int64), there, channels, D) - z_u
        a, w = tl.load(attention + e, there, 0.0), tl.load(weight + e, there, 0.0)
        along = a * tl.where(w > 1, w, 1.0) * tl.load(modulation + e, there, 0.0)
        d_flow = tl.sum(d_out_u * apart, 1)
        tl.store(flow + e, along, there)
        tl.store(d_attention + e, d_flow, there)
        along_a += tl.sum(a[:, None] * apart, 0)
        total += along
        mean += along * d_flow
    tl.store(d_z + at, along_a[None, :], mask)
    tl.store(inflow + u, tl.sum(total, 0) + tl.zeros([1], total.dtype))
    centre = tl.sum(mean, 0)
    tl.debug_barrier()
    for first in range(begin, end, E):
        e, there = _block(first, end, E)
        w, d_flow = tl.load(weight + e, there, 0.0), tl.load(d_attention + e, there, 0.0)
        softmax = tl.load(modulation + e, there, 0.0)
        emphasis = tl.where(w > 1, w, 1.0) * softmax
        apart = tl.load(attention + e, there, 0.0) * d_flow - tl.where(w > 1, 1.0, w) * centre
        tl.store(d_modulation + e, emphasis * apart, there)
        tl.store(d_attention + e, emphasis * d_flow, there)
        if d_weight is not None:
            tl.store(d_weight + e, softmax * tl.where(w > 1, apart, -centre), there)
        g = tl.load(norm + tl.load(src + e, there, 0), there, 1.0)
        by_left += emphasis * apart * _power(g, RIGHT)
    g = tl.load(norm + u)
    tl.store(d_norm + u, tl.sum(by_left, 0) * LEFT * _power(g, LEFT) / g)


@triton.jit
@no_type_check
def _through_norm(
    u, colptr, dst_by_source, order_by_source, norm, d_norm, d_modulation,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, E: tl.constexpr,
):
    """Return twice the gradient by g_u^2, from the scores of B on both sides of u."""
    by_right = tl.zeros([E], norm.dtype.element_ty)
    _, begin, end = _row(colptr)
    for first in range(begin, end, E):
        j, there = _block(first, end, E)
        g = tl.load(norm + tl.load(dst_by_source + j, there, 0), there, 1.0)
        e = tl.load(order_by_source + j, there, 0)
        by_right += tl.load(d_modulation + e, there, 0.0) * _power(g, LEFT)
    g = tl.load(norm + u)
    return (tl.load(d_norm + u) + tl.sum(by_right, 0) * RIGHT * _power(g, RIGHT) / g) / g


@triton.jit
@no_type_check
def _attend_backward(
    rowptr, src, colptr, dst_by_source, order_by_source, weight, projected, sides, heads, width,
    z, channels, relative, difference, norm, d_attention, d_modulation, d_norm, d_squared,
    d_scores, d_projected, d_weight,
    SCALE: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, FLOOR: tl.constexpr,
    CEILING: tl.constexpr, ROOT: tl.constexpr, NORM: tl.constexpr,
    E: tl.constexpr, H: tl.constexpr, C: tl.constexpr, D: tl.constexpr,
):
    """Compute gradients by the norm and, through it, by A; by the scores of A and the keys."""
    u, begin, end = _row(rowptr)
    if NORM != 0:
        d_g2 = _through_norm(
            u, colptr, dst_by_source, order_by_source, norm, d_norm, d_modulation, LEFT, RIGHT, E
        )
        if NORM == 1:
            d_g2 = tl.where(tl.load(norm + u) >= tl.full([1], ROOT, d_g2.dtype), 0.0, d_g2)
        else:
            residual = _inside(_load(difference, u, u >= 0, channels, D), FLOOR, CEILING)
            d_residual = d_g2[:, None] * residual
        tl.store(d_squared + u, d_g2)
    mean = tl.zeros([H], weight.dtype.element_ty)
    for first in range(begin, end, E):
        e, there = _block(first, end, E)
        d = tl.load(d_attention + e, there, 0.0)
        if NORM == 1:
            d += d_g2 / 2 * tl.load(difference + e, there, 0.0)
        if NORM == 2:
            v = tl.load(src + e, there, 0).to(tl.int64)
            d += tl.sum(d_residual * _load(z, v, there, channels, D), 1)
        if NORM != 0:
            tl.store(d_attention + e, d, there)
        along = (tl.load(weight + e, there, 0.0) * d)[:, None]
        mean += tl.sum(along * _load(relative, e, there, heads, H), 0)
    tl.debug_barrier()
    d_key = tl.zeros([H, C], weight.dtype.element_ty)
    for first in range(begin, end, E):
        e, there = _block(first, end, E)
        at, mask = _places(e, there, heads, H)
        d = tl.load(d_attention + e, there, 0.0)[:, None] - mean[None, :]
        centred = tl.load(relative + at, mask, 0.0) / heads * d
        d_score = SCALE * tl.load(weight + e, there, 0.0)[:, None] * centred
        tl.store(d_scores + at, d_score, mask)
        if d_weight is not None:
            d_w = tl.sum(centred, 1)
            if NORM != 0:
                d_w += tl.load(d_weight + e, there, 0.0)
            tl.store(d_weight + e, d_w, there)
        v = tl.load(src + e, there, 0).to(tl.int64)
        query = _queries(projected, v, there, sides, heads, width, H, C)
        d_key += tl.sum(d_score[:, :, None] * query, 0)
    at, mask = _sides(u, u >= 0, 0, 2, heads, width, H, C)
    tl.store(d_projected + at, d_key[None, :, :], mask)


@triton.jit
@no_type_check
def _pull_back(
    colptr, dst_by_source, order_by_source, projected, bias, sides, heads, width, z, channels,
    attention, difference, flow, inflow, d_out, d_squared, d_scores, d_projected, d_z,
    FLOOR: tl.constexpr, CEILING: tl.constexpr, NORM: tl.constexpr,
    E: tl.constexpr, H: tl.constexpr, C: tl.constexpr, D: tl.constexpr,
):
    """Compute gradients by the queries and features of v, over the edges that leave it."""
    v, begin, end = _row(colptr)
    d_query = tl.zeros([H, C], projected.dtype.element_ty)
    if NORM != 0:
        at, mask = _places(v, v >= 0, channels, D)
        z_v = tl.load(z + at, mask, 0.0)
        if NORM == 1:
            own = tl.load(d_z + at, mask, 0.0)
        else:
            own = _inside(tl.load(difference + at, mask, 0.0), FLOOR, CEILING)
        d_z_v = -tl.load(d_squared + v)[:, None] * own
        d_z_v -= tl.load(inflow + v)[:, None] * tl.load(d_out + at, mask, 0.0)
    for first in range(begin, end, E):
        j, there = _block(first, end, E)
        e = tl.load(order_by_source + j, there, 0).to(tl.int64)
        u = tl.load(dst_by_source + j, there, 0).to(tl.int64)
        d_score = _load(d_scores, e, there, heads, H)
        key = _keys(projected, bias, u, there, sides, heads, width, H, C)
        d_query += tl.sum(d_score[:, :, None] * key, 0)
        if NORM != 0:
            if NORM == 1:
                by_norm = z_v - _load(z, u, there, channels, D)
            else:
                by_norm = _inside(_load(difference, u, there, channels, D), FLOOR, CEILING)
            pull = tl.load(attention + e, there, 0.0) * tl.load(d_squared + u, there, 0.0)
            along = tl.load(flow + e, there, 0.0)[:, None] * _load(d_out, u, there, channels, D)
            d_z_v += tl.sum(along + pull[:, None] * by_norm, 0)[None, :]
    if NORM != 0:
        tl.store(d_z + at, d_z_v, mask)
    at, mask = _sides(v, v >= 0, 1, 2, heads, width, H, C)
    tl.store(d_projected + at, d_query[None, :, :], mask)


@triton.jit
@no_type_check
def _spectral(
    matrix, left, right, normalized, sigma, rows, columns,
    ITERATE: tl.constexpr, R: tl.constexpr, D: tl.constexpr,
):
    """Compute W / sigma in two passes over W: the new v is W^T W v up to its length."""
    column = tl.arange(0, D)
    v = tl.load(right + column, column < columns, 0.0)
    squared = tl.zeros([R], v.dtype)
    product = tl.zeros([D], v.dtype)
    for first in range(0, rows, R):
        row, there = _block(first, rows, R)
        block = _load(matrix, row, there, columns, D)
        u = tl.sum(block * v[None, :], 1) if ITERATE else tl.load(left + row, there, 0.0)
        squared += u * u
        product += tl.sum(block * u[:, None], 0)
    if ITERATE:
        length = tl.sqrt(tl.sum(squared, 0))
        length = tl.where(length < SHORTEST, SHORTEST, length)
        product /= length
        largest = tl.sqrt(tl.sum(product * product, 0))
        unit = product / tl.where(largest < SHORTEST, SHORTEST, largest)
        tl.store(right + column, unit, column < columns)
    else:
        largest = tl.sum(product * v, 0)
    tl.store(sigma, largest)
    for first in range(0, rows, R):
        row, there = _block(first, rows, R)
        at, mask = _places(row, there, columns, D)
        block = tl.load(matrix + at, mask, 0.0)
        tl.store(normalized + at, block / largest, mask)
        if ITERATE:
            tl.store(left + row, tl.sum(block * v[None, :], 1) / length, there)


@triton.jit
@no_type_check
def _spectral_backward(
    grad, normalized, left, right, sigma, gradient, rows, columns,
    R: tl.constexpr, D: tl.constexpr,
):
    k, column = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    v = tl.load(right + k * columns + column, column < columns, 0.0)
    along = tl.zeros([R], v.dtype)
    for first in range(0, rows, R):
        row, there = _block(first, rows, R)
        at, mask = _places(k * rows + row, there, columns, D)
        along += tl.sum(tl.load(grad + at, mask, 0.0) * tl.load(normalized + at, mask, 0.0), 1)
    for first in range(0, rows, R):
        row, there = _block(first, rows, R)
        at, mask = _places(k * rows + row, there, columns, D)
        u = tl.load(left + k * rows + row, there, 0.0)
        d = tl.load(grad + at, mask, 0.0) - tl.sum(along, 0) * u[:, None] * v[None, :]
        tl.store(gradient + at, d / tl.load(sigma + k), mask)
# fmt: on


def launch(kernel: Any, programs: int, arguments: dict[str, Any]) -> None:
    """Run a kernel on the arguments that it declares; those that are absent are None."""
    values = {name: arguments.get(name) for name in kernel.arg_names}
    device = next(value for value in values.values() if isinstance(value, Tensor))
    if programs:
        with torch.cuda.device_of(device):  # type: ignore[no-untyped-call]
            kernel[(programs,)](**values)


class TritonKernels(Kernels):
    """Sums over edges in Triton: a diffusion is two launches, its derivative three.

    A value of every node is completed between two launches. A barrier within one would wait
    forever on a graph of more rows than programs run at once.
    """

    name = "triton"

    def dots(self, x: Tensor, y: Tensor, graph: Graph) -> Tensor:
        """Return <x_u, y_v> of every edge."""
        check_sizes(graph, (x, y))
        out = x.new_empty(graph.num_edges)
        block = {"E": MOST_EDGES, "D": min(256, triton.next_power_of_2(x.size(1)))}
        arguments = {"x": x, "y": y, "out": out, "channels": x.size(1), **block}
        launch(_dots, graph.num_nodes, _indexes(graph.edges) | arguments)
        return out

    def softmax(self, scores: Tensor, weight: Tensor, graph: Graph) -> Tensor:
        """Return exp(s) / sum of w exp(s) over each row."""
        check_sizes(graph, (), (scores, weight))
        relative, heads = torch.empty_like(scores), scores.size(1)
        arguments = {"scores": scores, "weight": weight, "relative": relative, "heads": heads}
        block = {"E": MOST_EDGES, "H": triton.next_power_of_2(heads)}
        arguments |= {"TINY": torch.finfo(scores.dtype).tiny, **block}
        launch(_softmax_rows, graph.num_nodes, _indexes(graph.edges) | arguments)
        return relative

    def attend(
        self, projected: Tensor, bias: Tensor | None, weight: Tensor, graph: Graph
    ) -> Attended:
        """Return the attention; `relative` is [e, h]."""
        return _attended(_arguments(projected, bias, weight, graph), graph)

    def attend_backward(
        self, grad: Tensor, attended: Attended, *, with_weight: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradients by keys and queries, and by the weights."""
        projected, weight, graph = attended.projected, attended.weight, attended.graph
        arguments = _arguments(projected, attended.bias, weight, graph) | vars(attended)
        arguments |= {"d_attention": grad, "d_scores": torch.empty_like(attended.relative)}
        arguments |= {"d_projected": _empty_sides(projected)}
        arguments["d_weight"] = torch.empty_like(weight) if with_weight else None
        for kernel in (_attend_backward, _pull_back):
            launch(kernel, graph.num_nodes, arguments)
        return arguments["d_projected"], arguments["d_weight"]

    def diffuse(
        self,
        z: Tensor,
        projected: Tensor,
        bias: Tensor | None,
        weight: Tensor,
        graph: Graph,
        modulation: Modulation,
    ) -> tuple[Tensor, Diffused]:
        """Diffuse in two launches: up to the gradient norms, then the rest."""
        arguments = _arguments(projected, bias, weight, graph, z, modulation)
        difference = torch.empty_like(z if modulation.residual else weight)
        norm, relative = weight.new_empty(graph.num_nodes), torch.empty_like(weight)
        attended = _attended(arguments | {"difference": difference, "norm": norm}, graph)
        arguments |= {"attention": attended.attention, "norm": norm, "modulation": relative}
        out = torch.empty_like(z)
        launch(_diffuse, graph.num_nodes, arguments | {"out": out})
        return out, Diffused(attended, z, modulation, difference, norm, relative)

    def diffuse_backward(
        self, grad: Tensor, diffused: Diffused, *, with_weight: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Differentiate in three launches; each completes a value of every node."""
        attended, z = diffused.attended, diffused.z
        projected, weight, graph = attended.projected, attended.weight, attended.graph
        options = attended.bias, weight, graph, z, diffused.modulation
        arguments = _arguments(projected, *options) | vars(attended)
        arguments |= {"difference": diffused.difference, "norm": diffused.norm}
        arguments |= {"modulation": diffused.relative, "d_out": grad}
        arguments |= {
            name: torch.empty_like(weight) for name in ("flow", "d_attention", "d_modulation")
        }
        arguments |= {
            name: torch.empty_like(diffused.norm) for name in ("inflow", "d_norm", "d_squared")
        }
        arguments |= {"d_z": torch.empty_like(z), "d_projected": _empty_sides(projected)}
        arguments["d_scores"] = torch.empty_like(attended.relative)
        arguments["d_weight"] = torch.empty_like(weight) if with_weight else None
        for kernel in (_diffuse_backward, _attend_backward, _pull_back):
            launch(kernel, graph.num_nodes, arguments)
        return arguments["d_z"], arguments["d_projected"], arguments["d_weight"]

    def spectral(
        self, matrices: Tensors, left: Tensors, right: Tensors, *, iterate: bool
    ) -> tuple[Tensor, Tensor]:
        """Divide matrices by their largest singular values, in one launch per matrix."""
        normalized = matrices[0].new_empty(len(matrices), *matrices[0].shape)
        sigma = normalized.new_empty(len(matrices))
        names = "matrix", "left", "right", "normalized", "sigma"
        for tensors in zip(matrices, left, right, normalized, sigma, strict=True):
            arguments = dict(zip(names, tensors, strict=True)) | _matrix(normalized)
            launch(_spectral, 1, arguments | {"ITERATE": iterate})
        return normalized, sigma

    def spectral_backward(
        self, grad: Tensor, normalized: Tensor, left: Tensor, right: Tensor, sigma: Tensor
    ) -> Tensor:
        """Return the gradients by the matrices, in one launch for all of them."""
        gradient = torch.empty_like(normalized)
        arguments: dict[str, Any] = {
            "grad": grad,
            "normalized": normalized,
            "left": left,
            "right": right,
        }
        arguments |= {"sigma": sigma, "gradient": gradient, **_matrix(normalized)}
        launch(_spectral_backward, len(normalized), arguments)
        return gradient


def _attended(arguments: dict[str, Any], graph: Graph) -> Attended:
    weight = arguments["weight"]
    relative = weight.new_empty(graph.num_edges, arguments["heads"])
    attention = torch.empty_like(weight)
    projections = arguments["projected"], arguments["bias"]
    attended = Attended(*projections, weight, graph, attention, relative)
    launch(_attend, graph.num_nodes, arguments | vars(attended))
    return attended


def _empty_sides(projected: Tensor) -> Tensor:
    """Return memory for gradients by keys and queries."""
    return projected.new_empty(projected.size(0), 2, *projected.shape[2:])


def _arguments(
    projected: Tensor,
    bias: Tensor | None,
    weight: Tensor,
    graph: Graph,
    z: Tensor | None = None,
    modulation: Modulation | None = None,
) -> dict[str, Any]:
    """Return the arguments of the attention and diffusion kernels, by name."""
    check_sizes(graph, [x for x in (projected, z) if x is not None], (weight,))
    heads, width = projected.shape[2:]
    channels = 0 if z is None else z.size(1)
    arguments: dict[str, Any] = {"weight": weight, "projected": projected, "bias": bias}
    arguments |= {"sides": projected.size(1), "heads": heads, "width": width}
    arguments |= {"z": z, "channels": channels, "NORM": 0, "SCALE": 1 / math.sqrt(width)}
    if (m := modulation) is not None:
        arguments |= {"LEFT": m.left, "RIGHT": m.right, "FLOOR": m.floor, "CEILING": m.ceiling}
        arguments |= {"ROOT": math.sqrt(m.ceiling), "NORM": 1 + m.residual}
    h, c, d = map(triton.next_power_of_2, (heads, width, max(1, channels)))
    edges = max(1, min(MOST_EDGES, MOST_VALUES // max(h * c, d)))
    arguments |= {"TINY": torch.finfo(weight.dtype).tiny, "E": edges, "H": h, "C": c, "D": d}
    return _indexes(graph.edges) | arguments


def _indexes(edges: SortedEdges) -> dict[str, Any]:
    names = "rowptr", "colptr", "dst_by_source", "order_by_source"
    return {name: getattr(edges, name) for name in names} | {"src": edges.sources}


def _matrix(matrices: Tensor) -> dict[str, int]:
    rows, columns = matrices.shape[1:]
    d = triton.next_power_of_2(columns)
    r = max(1, min(triton.next_power_of_2(rows), MOST_VALUES // d))
    return {"rows": rows, "columns": columns, "R": r, "D": d}
