"""Edge order: models that rely on sorted edges get attacked graphs sorted as the clean graph is."""

from functools import partial
from typing import Any

from jaxtyping import Int, Shaped
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from robust_diffusion.system.by_tensor import ByTensor

SORTED = ByTensor()
"""Sorted edges and their permutation, by the tensor that is sorted."""


def sorted_row(edge_index: Int[Tensor, "2 e"]) -> int | None:
    """Return the row by which edges are sorted, ties by the other row; `None` if by neither."""
    for row in (0, 1):
        key = _key(edge_index, row)
        if (key[1:] >= key[:-1]).all():
            return row
    return None


def sorted_by(
    row: int | None, edge_index: Int[Tensor, "2 e"], *per_edge: Shaped[Tensor, "e ..."] | None
) -> tuple[Any, ...]:
    """Return edges sorted by a row, ties by the other, and values of each edge in that order.

    Args:
        row: 0 or 1; `None` leaves the order as it is.
        edge_index: Edges.
        per_edge: Values of the edges; `None` stays.
    """
    if row is None:
        return edge_index, *per_edge

    def compute() -> tuple[Tensor, Tensor]:
        order = _key(edge_index, row).argsort(stable=True)
        return edge_index[:, order], order

    edges, order = SORTED.kept(edge_index, row, compute)
    return edges, *(None if values is None else values[order] for values in per_edge)


def sort_inputs(model: nn.Module, row: int | None) -> RemovableHandle:
    """Sort the edges in every call of a model, until the handle is removed."""
    return model.register_forward_pre_hook(partial(_sorted_inputs, row), prepend=True)


def _sorted_inputs(row: int | None, _: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    x, edge_index, *weights = args
    return x, *sorted_by(row, edge_index, *weights)


def _key(edge_index: Tensor, row: int) -> Tensor:
    return (edge_index[row] << 32) + edge_index[1 - row]
