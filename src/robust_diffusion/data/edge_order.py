"""Edge order: models that rely on sorted edges get attacked graphs sorted as the clean graph is."""

from functools import partial
from typing import Any

from jaxtyping import Int, Shaped
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from robust_diffusion.system.tensor_hashes import ByTensor

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
    hook = partial(_sorted_inputs, row)
    return model.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)


def _sorted_inputs(
    row: int | None, _: nn.Module, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Sort edges and their weights, whether the model is called by position or by name."""
    edges = args[1] if len(args) > 1 else named["edge_index"]
    weights = {name: named[name] for name in named.keys() - {"x", "edge_index"}}
    found, *values = sorted_by(row, edges, *args[2:], *weights.values())
    by_name = dict(zip(weights, values[len(args[2:]) :], strict=True))
    if len(args) > 1:
        return (args[0], found, *values[: len(args) - 2]), by_name
    return args, {**named, "edge_index": found, **by_name}


def _key(edge_index: Tensor, row: int) -> Tensor:
    return (edge_index[row] << 32) + edge_index[1 - row]
