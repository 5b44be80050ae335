"""Sums over edges by the sparse operators that PyTorch has; nothing here has a derivative."""

import warnings
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from robust_diffusion.operators.graph import CompactIndexes, product_over

CHUNK = 4096
"""Edges whose features are held at once: what stays in cache needs no new memory pages."""


def multiply(
    value: Tensor, x: Tensor, indexes: CompactIndexes, *, transposed: bool = False
) -> Tensor:
    """Sparse matrix of these values, or its transpose, times node features."""
    if transposed:
        value = value.index_select(0, indexes.order_by_source)
        return product_over(indexes.colptr, indexes.dst_by_source, value, x)
    return product_over(indexes.rowptr, indexes.src, value, x)


def row_sum(values: Tensor, indexes: CompactIndexes, *, transposed: bool = False) -> Tensor:
    """Sum over the edges that arrive at each node, or over those that leave it."""
    if transposed:
        values = values.index_select(0, indexes.order_by_source)
    pointers = indexes.colptr if transposed else indexes.rowptr
    return torch.segment_reduce(values, "sum", offsets=pointers, unsafe=True)


def row_max(values: Tensor, indexes: CompactIndexes) -> Tensor:
    """Largest value of the edges that arrive at each node; -infinity where none does."""
    return torch.segment_reduce(
        values, "max", offsets=indexes.rowptr, initial=-torch.inf, unsafe=True
    )


def dots(x: Tensor, y: Tensor, indexes: CompactIndexes, *, scale: float = 1.0) -> Tensor:
    """`scale` times <x_u, y_v> of every edge v -> u."""
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
    """A sparse matrix of this structure, its entries 0."""
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
    """|z_v - z_u|^2, from the differences: expanding the square would cancel where z is smooth."""
    if z.device.type != "cpu":
        difference = z.index_select(0, indexes.src).sub_(z.index_select(0, indexes.dst))
        return difference.square_().sum(1)
    # z_v - z_u as a sum over two entries, of weights 1 and -1: one operator instead of three, in
    # stretches that stay in the cache.
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
