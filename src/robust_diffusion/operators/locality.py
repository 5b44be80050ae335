"""An order of a large graph's nodes in which neighbours lie close to each other in memory.

A sum over edges reads a row of features for each edge. Where these rows are all over a memory that
is larger than the caches, it waits for them. Only the diffusion runs in this order: features are
put into it before, and back after, so that nothing else sees it, and results change by rounding.
"""

import logging
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from robust_diffusion.operators.graph import EdgeIndexes, Graph

NODES_FROM = 2**17
"""Nodes from which a graph is put into an order of its own; no published graph has as many."""

WINDOW = 2**12
"""Nodes whose features are close: at width 64, a megabyte."""

GAIN = 0.05
"""Share of the edges that must come to be close, or else the nodes stay as they are."""

NODES_PER_PART = 2**11
"""Of METIS's parts: at width 64, half a megabyte."""

log = logging.getLogger(__name__)


class NodeOrder:
    """Nodes renumbered, and edges sorted anew by destination.

    Args:
        nodes: The old number of each new node.
    """

    def __init__(self, nodes: Int[Tensor, " n"]) -> None:
        self._nodes = nodes
        self._sorted: WeakKeyDictionary[EdgeIndexes, _Edges] = WeakKeyDictionary()

    @cached_property
    def _numbers(self) -> Tensor:
        """The new number of each old node."""
        with torch.inference_mode(mode=False):
            return _inverse(self._nodes)

    def arrange(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Features of the nodes in the new order, differentiable."""
        return _permuted(x, self._nodes, self._numbers)

    def restore(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Features of the nodes in the old order, differentiable."""
        return _permuted(x, self._numbers, self._nodes)

    def renumber(self, graph: Graph) -> Graph:
        """The graph on the renumbered nodes, differentiable in its weights; nothing is carried."""
        edges = self._sorted.get(graph.indexes)
        if edges is None:
            with torch.inference_mode(mode=False):
                edges = self._sorted[graph.indexes] = self._sort(graph)
        ends = edges.indexes.src, edges.indexes.dst
        if graph.unweighted:
            ones = graph.weight
            return Graph(*ends, ones, graph.num_nodes, edges.indexes, ones)
        weight = _permuted(graph.weight, edges.order, edges.inverse)
        return Graph(*ends, weight, graph.num_nodes, edges.indexes)

    def _sort(self, graph: Graph) -> "_Edges":
        dst, order = torch.sort(self._numbers[graph.dst], stable=True)
        src = self._numbers[graph.src[order]]
        return _Edges(order, _inverse(order), EdgeIndexes(src, dst, graph.num_nodes))


@dataclass(frozen=True, eq=False)
class _Edges:
    order: Tensor  # old position of each edge
    inverse: Tensor  # new position
    indexes: EdgeIndexes


# An entry goes when the edges do.
_ORDERS: WeakKeyDictionary[EdgeIndexes, NodeOrder | None] = WeakKeyDictionary()


def node_order(graph: Graph) -> NodeOrder | None:
    """A better order of the nodes, found once per edge list.

    That of METIS's parts (Karypis and Kumar 1998) if pymetis is there, else reverse Cuthill-McKee
    (1969).

    Returns:
        The order; `None` on a GPU, below `NODES_FROM` nodes, and where hardly more edges than now
        would have both ends close to each other.
    """
    if graph.num_nodes < NODES_FROM or graph.src.device.type != "cpu" or graph.carried:
        return None
    if graph.indexes not in _ORDERS:
        with torch.inference_mode(mode=False):
            _ORDERS[graph.indexes] = _found(graph)
    return _ORDERS[graph.indexes]


def _found(graph: Graph) -> NodeOrder | None:
    start = time.perf_counter()
    src, dst = graph.src.numpy(), graph.dst.numpy()
    before = _share_close(src, dst)
    # More than this would have to come close for it to pay.
    if before > 1 - GAIN:
        return None
    name, nodes = _ordered(src, dst, graph.num_nodes)
    order = NodeOrder(torch.from_numpy(nodes))
    numbers = order._numbers.numpy()
    after = _share_close(numbers[src], numbers[dst])
    log.info(
        "%s nodes by %s in %.1f s: %.0f %% of edges join close ones, instead of %.0f %%%s",
        *(f"{graph.num_nodes:,}", name, time.perf_counter() - start, 100 * after, 100 * before),
        "" if after >= before + GAIN else "; left as they are",
    )
    return order if after >= before + GAIN else None


def _share_close(src: NDArray[np.int64], dst: NDArray[np.int64]) -> float:
    return float((np.abs(src - dst) < WINDOW).mean())


def _ordered(
    src: NDArray[np.int64], dst: NDArray[np.int64], num_nodes: int
) -> tuple[str, NDArray[np.int64]]:
    apart = src != dst
    ones = np.ones(int(apart.sum()), dtype=np.int8)
    edges = sp.csr_array((ones, (src[apart], dst[apart])), shape=(num_nodes, num_nodes))
    edges = sp.csr_array(edges + edges.T)
    try:
        import pymetis  # comes with the extra for clusters only
    except ImportError:
        found = reverse_cuthill_mckee(sp.csr_matrix(edges), symmetric_mode=True)
        return "reverse Cuthill-McKee", found.astype(np.int64)
    parts = pymetis.part_graph(
        max(2, num_nodes // NODES_PER_PART),
        pymetis.CSRAdjacency(edges.indptr, edges.indices),
        options=pymetis.Options(seed=0),
    )
    return "METIS", np.argsort(np.asarray(parts.vertex_part), kind="stable").astype(np.int64)


def _inverse(order: Tensor) -> Tensor:
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(order.numel(), device=order.device)
    return inverse


def _permuted(x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
    return _Permuted.apply(x, order, inverse)  # type: ignore[no-any-return, no-untyped-call]


class _Permuted(torch.autograd.Function):
    """Rows in another order; its derivative reads rows, where torch's own would add them up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.orders = order, inverse
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        order, inverse = ctx.orders
        return _permuted(grad, inverse, order), None, None
