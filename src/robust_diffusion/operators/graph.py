"""The graph that every operator works on: edges sorted by destination (CSR), and sums over them."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from robust_diffusion.errors import DataError
from robust_diffusion.system.memory import KEPT_ABOVE, keep_freed_memory
from robust_diffusion.system.tensor_hashes import ByTensor

NodeSignal = Float[Tensor, "n d"]
"""Features of the n nodes, d channels each."""

EdgeValues = Float[Tensor, " e"]
"""One number for each of the e edges."""

Cached = TypeVar("Cached")

LOOK_AHEAD = 16
"""Entries past the last edge that kernels may read when they prefetch."""


class SortedEdges:
    """The edges of a graph sorted by destination, with the indexes that sums over them read.

    Indexes are computed on first use, as 32-bit integers. Graphs with the same edges and other
    weights share one instance.

    Args:
        src: Source node of each edge, in 0..num_nodes-1.
        dst: Destination node of each edge, ascending.
        num_nodes: Number of nodes n.
    """

    def __init__(self, src: Int[Tensor, " e"], dst: Int[Tensor, " e"], num_nodes: int) -> None:
        self.src, self.dst, self.num_nodes = src, dst, num_nodes
        self._cache: dict[Hashable, Any] = {}

    def cached(self, key: Hashable, compute: Callable[[], Cached]) -> Cached:
        """Return the cached value of `key` for these edges, computing it on a miss."""
        if key not in self._cache:
            # Normal tensors even in inference mode: training may use them next.
            with torch.inference_mode(mode=False):
                self._cache[key] = compute()
        return cast(Cached, self._cache[key])

    @cached_property
    def rowptr(self) -> Int[Tensor, " n_plus_1"]:
        """Pointers to the edges that arrive at node u: `rowptr[u]:rowptr[u + 1]`.

        Raises:
            DataError: The edges are not sorted by destination.
        """
        dst = self.dst
        if dst.device.type == "cpu" and (dst[1:] < dst[:-1]).any():  # elsewhere a host sync
            raise DataError("graph.dst: expected ascending nodes; use Graph.from_edge_index")
        return _pointers(dst, self.num_nodes)

    @cached_property
    def sources(self) -> Int[Tensor, " e"]:
        """Source node of each edge."""
        return _readable_beyond(self.src)

    @cached_property
    def destinations(self) -> Int[Tensor, " e"]:
        """Destination node of each edge."""
        return _readable_beyond(self.dst)

    @cached_property
    def ends(self) -> Int[Tensor, " twice_e"]:
        """Source and destination of each edge, one after the other."""
        with torch.inference_mode(mode=False):
            return torch.stack([self.sources, self.destinations], 1).flatten()

    @property
    def colptr(self) -> Int[Tensor, " n_plus_1"]:
        """Pointers to the edges that leave node v, in the order by source."""
        return self._by_source[0]

    @property
    def dst_by_source(self) -> Int[Tensor, " e"]:
        """Destinations of the edges in the order by source."""
        return self._by_source[1]

    @property
    def order_by_source(self) -> Int[Tensor, " e"]:
        """Permutation that sorts the edges by source."""
        return self._by_source[2]

    @cached_property
    def _by_source(self) -> tuple[Tensor, Tensor, Tensor]:
        src, order = torch.sort(self.src, stable=True)
        dst = _readable_beyond(self.dst[order])
        return _pointers(src, self.num_nodes), dst, _readable_beyond(order)

    @cached_property
    def both_ways(self) -> bool:
        """Whether every edge has its reverse."""
        n = self.num_nodes
        there, back = self.src * n + self.dst, self.dst * n + self.src
        return torch.equal(there.sort().values, back.sort().values)


def _pointers(sorted_nodes: Tensor, num_nodes: int) -> Tensor:
    with torch.inference_mode(mode=False):
        nodes = torch.arange(num_nodes + 1, device=sorted_nodes.device)
        return torch.searchsorted(sorted_nodes, nodes, out_int32=True)


def _readable_beyond(nodes: Tensor) -> Tensor:
    """Return 32-bit integers, with memory behind the last that kernels may prefetch."""
    with torch.inference_mode(mode=False):
        return F.pad(nodes.int(), (0, LOOK_AHEAD))[: nodes.numel()]


@dataclass(frozen=True, eq=False)
class Graph:
    """A directed graph with its edges sorted by destination, messages running src -> dst.

    Sorting once makes every sum over the edges that arrive at a node a sum over one contiguous
    segment, which is what the operators need both forward and backward.

    Examples:
        >>> import torch
        >>> from robust_diffusion import Solver
        >>> from robust_diffusion.flows import Heat
        >>> from robust_diffusion.operators import Graph
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> graph = Graph.from_edge_index(edge_index, num_nodes=3)
        >>> Solver("rk4", num_steps=8).solve(Heat(4), torch.ones(3, 4), graph).shape
        torch.Size([3, 4])
    """

    edges: SortedEdges
    # At least 0, and 0 is the same as no edge; `None` for 1 on every edge.
    weight: Float[Tensor, " e"] | None = None
    dtype: torch.dtype = torch.float32  # of `full_weight`; that of `weight` if there is one
    # Tensors that a flow takes along for one solve; see `Flow.prepare`.
    carried: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Take over the type of the weights."""
        if self.weight is not None:
            object.__setattr__(self, "dtype", self.weight.dtype)

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        *,
        num_nodes: int,
        dtype: torch.dtype = torch.float32,
        self_loops: bool = True,
    ) -> "Graph":
        """Sort an edge list by destination, adding the self-loops that are missing.

        The order is computed once per tensor `edge_index` and cached as long as that tensor lives
        unchanged, so that training and attacks, which pass the same tensor again and again,
        neither sort nor wait for the device. Edits through `.numpy()` or `.data` go unnoticed:
        write to the tensor itself, or pass a new one.

        Args:
            edge_index: Rows are source and destination.
            edge_weight: Weights of the edges; 1 on every edge when absent. Gradients flow to it.
            num_nodes: Number of nodes n.
            dtype: Type of the weights when `edge_weight` is absent, a mask, or whole numbers.
            self_loops: Add an edge of weight 1 from each node to itself where there is none.

        Returns:
            The sorted graph.

        Raises:
            DataError: An edge ends at no node, a node's number is not whole, or there is not one
                weight for each edge.
        """
        make = partial(_Layout, edge_index, num_nodes, self_loops=self_loops)
        layout = _LAYOUTS.kept(edge_index, (num_nodes, self_loops), make)
        if edge_weight is None:
            return cls(layout.edges, dtype=dtype)
        if not edge_weight.is_floating_point():  # sums of a mask are no degrees
            edge_weight = edge_weight.to(dtype)
        return cls(layout.edges, layout.arrange(edge_weight))

    def carrying(self, **tensors: Tensor) -> "Graph":
        """Return the graph with further tensors that a flow reads as `graph.carried[name]`."""
        return replace(self, carried={**self.carried, **tensors})

    @property
    def src(self) -> Int[Tensor, " e"]:
        """Source node of each edge."""
        return self.edges.src

    @property
    def dst(self) -> Int[Tensor, " e"]:
        """Destination node of each edge, ascending."""
        return self.edges.dst

    @property
    def num_nodes(self) -> int:
        """Number of nodes n."""
        return self.edges.num_nodes

    @property
    def num_edges(self) -> int:
        """Number of directed edges e, self-loops included."""
        return self.src.numel()

    @property
    def edge_index(self) -> Int[Tensor, "2 e"]:
        """The edges as PyG writes them."""
        return torch.stack([self.src, self.dst])

    @property
    def full_weight(self) -> EdgeValues:
        """The weights as a tensor, ones where `weight` is `None`; do not write to it."""
        if self.weight is not None:
            return self.weight
        ones = partial(torch.ones, self.num_edges, dtype=self.dtype, device=self.src.device)
        return self.edges.cached(("ones", self.dtype), ones)


class _Layout:
    """Order of the edges of one `edge_index` in a `Graph`."""

    def __init__(self, edge_index: Tensor, num_nodes: int, *, self_loops: bool) -> None:
        check_edges(edge_index, num_nodes)
        nodes = torch.arange(num_nodes, device=edge_index.device)
        if self_loops:
            self._given = torch.arange(edge_index.size(1), device=edge_index.device)
            self._loops = self._given[:0]
            if _has_loops(edge_index):
                # The input's self-loops move to the end, one for every node, as in PyG.
                is_loop = edge_index[0] == edge_index[1]
                self._given = (~is_loop).nonzero().squeeze(1)
                self._loops = is_loop.nonzero().squeeze(1)
            src = torch.cat([edge_index[0, self._given], nodes])
            dst = torch.cat([edge_index[1, self._given], nodes])
        else:
            src, dst = edge_index
        self._num_given = edge_index.size(1)
        self._self_loops = self_loops
        self._loop_nodes = edge_index[0, self._loops] if self_loops else None
        self._num_nodes = num_nodes
        dst, self._order = torch.sort(dst, stable=True)
        self.edges = SortedEdges(src[self._order], dst, num_nodes)
        # The largest tensors of a diffusion: keys and queries 64 wide, scores of 4 heads.
        if max(2 * 64 * num_nodes, 4 * dst.numel()) * 4 > KEPT_ABOVE:
            keep_freed_memory()

    def arrange(self, weight: Tensor) -> Tensor:
        """Return the weights in the order of the graph's edges, 1 on self-loops that were added."""
        if weight.shape != (self._num_given,):
            shape = " x ".join(map(str, weight.shape)) or "no dimension"
            raise DataError(
                f"edge_weight: expected one number for each of {self._num_given} edges, got shape "
                f"{shape}; use a tensor of one dimension"
            )
        if self._self_loops:
            loops = weight.new_ones(self._num_nodes)
            loops = loops.index_put((self._loop_nodes,), weight[self._loops])
            weight = torch.cat([weight[self._given], loops])
        return weight[self._order]


_LAYOUTS = ByTensor()
_LOOPS = ByTensor()
"""Whether edges contain a self-loop; to find out is a host sync on a GPU."""


def _has_loops(edge_index: Int[Tensor, "2 e"]) -> bool:
    return _LOOPS.kept(edge_index, None, lambda: bool((edge_index[0] == edge_index[1]).any()))


def append_edges(edge_index: Int[Tensor, "2 e"], new: Int[Tensor, "2 a"]) -> Int[Tensor, "2 e2"]:
    """Append edges, none of them a self-loop, to a graph that is extended many times.

    Only the first time is there a host sync on a GPU, to look for self-loops in the graph.
    """
    has_loops, edges = _has_loops(edge_index), torch.cat([edge_index, new], 1)
    _LOOPS.kept(edges, None, lambda: has_loops)
    return edges


def check_edges(edge_index: Tensor, num_nodes: int) -> None:
    """Raise a `DataError` for edges of another shape, or of nodes that do not exist."""
    if edge_index.ndim != 2 or edge_index.size(0) != 2:
        shape = " x ".join(map(str, edge_index.shape))
        raise DataError(f"edge_index: expected shape 2 x e, got {shape}; see `to_undirected`")
    if edge_index.is_floating_point() or edge_index.dtype == torch.bool:
        kind = str(edge_index.dtype).removeprefix("torch.")
        raise DataError(f"edge_index: expected whole numbers, got {kind}; use edge_index.long()")
    if edge_index.numel() and edge_index.device.type == "cpu":  # elsewhere this is a host sync
        low, high = map(int, edge_index.aminmax())
        if low < 0 or high >= num_nodes:
            raise DataError(
                f"edge_index: expected nodes in 0..{num_nodes - 1}, got {low}..{high}; check "
                "num_nodes"
            )


def row_sum(values: Float[Tensor, " e *channels"], graph: Graph) -> Float[Tensor, " n *channels"]:
    """Sum edge values over the edges that arrive at each node; 0 where none does."""
    out = values.new_zeros((graph.num_nodes, *values.shape[1:]))
    return out.index_add(0, graph.dst, values)


def gather_dst(
    values: Shaped[Tensor, " n *channels"], graph: Graph
) -> Shaped[Tensor, " e *channels"]:
    """Give each edge the value of its destination: the transpose of `row_sum`."""
    # index_select copies rows about three times as fast as indexing with a tensor does.
    return values.index_select(0, graph.dst)


def gather_src(
    values: Shaped[Tensor, " n *channels"], graph: Graph
) -> Shaped[Tensor, " e *channels"]:
    """Give each edge the value of its source."""
    return values.index_select(0, graph.src)


def row_max(values: Float[Tensor, "e h"], graph: Graph) -> Float[Tensor, "n h"]:
    """Return the largest edge value at each destination, without gradient; -inf without edges."""
    return torch.segment_reduce(
        values.detach(), "max", offsets=graph.edges.rowptr, axis=0, initial=-torch.inf, unsafe=True
    )


def product_over(pointers: Tensor, columns: Tensor, weight: Tensor, z: Tensor) -> Tensor:
    """Return the product of a CSR matrix (pointers, columns, weight) with z, without autograd.

    If autocast has lowered the precision of one of them, the product has that of the other.
    """
    dtype = torch.promote_types(weight.dtype, z.dtype)
    # Detached, since embedding_bag prepares a gradient for tensors that require one.
    weight, z = weight.detach().to(dtype), z.detach().to(dtype)
    # embedding_bag is torch's fastest weighted sum over segments on CPU; it needs at least one
    # entry, and on an empty graph the product is zero.
    if columns.numel() == 0:
        return z.new_zeros(pointers.numel() - 1, z.size(1))
    return F.embedding_bag(
        columns, z, pointers, mode="sum", per_sample_weights=weight, include_last_offset=True
    )


def multiply(value: Tensor, z: Tensor, edges: SortedEdges, *, transposed: bool = False) -> Tensor:
    """Return the matrix of edge values, or its transpose, times z, without autograd."""
    if transposed:
        value = value.index_select(0, edges.order_by_source)
        return product_over(edges.colptr, edges.dst_by_source, value, z)
    return product_over(edges.rowptr, edges.sources, value, z)


def symmetric_weights(
    graph: Graph, degree: Float[Tensor, " n"] | None = None, *, order: float = -0.5
) -> EdgeValues:
    """Return the edge weights of D^order (A + I) D^order; `graph` has the edges of A + I.

    D is `degree`, or the sum of the weights that arrive at a node. An edge from a node that no edge
    reaches, not even a self-loop, weighs 0. The result is cached for an unweighted graph.
    """
    if degree is None and graph.weight is None:
        key = "symmetric_weights", order, graph.dtype
        return graph.edges.cached(key, lambda: _over_degrees(graph, None, order))
    return _over_degrees(graph, degree, order)


def _over_degrees(graph: Graph, degree: Tensor | None, order: float) -> Tensor:
    if degree is None:
        degree = row_sum(graph.full_weight, graph)
        degree = torch.where(degree > 0, degree, torch.inf)
    scale = degree.clamp_min(1e-38).pow(order)
    return gather_src(scale, graph) * graph.full_weight * gather_dst(scale, graph)


def graph_with_degree(
    x: Any,  # features, of which only the number of nodes and the type matter
    edge_index: Int[Tensor, "2 e"],
    edge_weight: EdgeValues | None = None,
    degree: Float[Tensor, " n"] | None = None,
) -> tuple[Graph, Float[Tensor, " n"]]:
    """Return the graph with self-loops, and the degrees to normalise by: `degree` or its own.

    GRB normalises the whole graph and then cuts it, so degrees may be those of a larger graph.
    """
    graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
    return graph, row_sum(graph.full_weight, graph) if degree is None else degree


def mean_weights(graph: Graph, degree: Float[Tensor, " n"]) -> EdgeValues:
    """Return the edge weights of D^-1 (A + I), a mean over the edges that arrive at a node."""
    return graph.full_weight * gather_dst(degree.clamp_min(1e-38).reciprocal(), graph)
