"""Sums over the edges that arrive at a node, and values of nodes carried to their edges."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor

from robust_diffusion.operators.graph import Graph


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
