"""The edge structure that every operator works on: edges sorted by destination (CSR)."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.utils import add_remaining_self_loops


@dataclass(frozen=True, eq=False)
class Graph:
    """A directed graph with its edges sorted by destination, messages running src -> dst.

    Sorting once makes every sum over the edges that arrive at a node a sum over one contiguous
    segment, which is what the operators need both forward and backward.

    Args:
        src: Source node of each edge, in 0..num_nodes-1.
        dst: Destination node of each edge, ascending.
        weight: Edge weights, at least 0; a weight of 0 is the same as no edge.
        num_nodes: Number of nodes n.
    """

    src: Int[Tensor, " e"]
    dst: Int[Tensor, " e"]
    weight: Float[Tensor, " e"]
    num_nodes: int

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

        Args:
            edge_index: Rows are source and destination.
            edge_weight: Weights of the edges; 1 on every edge when absent. Gradients flow to it.
            num_nodes: Number of nodes n.
            dtype: Type of the weights when `edge_weight` is absent.
            self_loops: Add an edge of weight 1 from each node to itself where there is none.

        Returns:
            The sorted graph.
        """
        if edge_weight is None:
            edge_weight = torch.ones(edge_index.size(1), dtype=dtype, device=edge_index.device)
        if self_loops:
            edge_index, loops_and_edges = add_remaining_self_loops(
                edge_index, edge_weight, fill_value=1.0, num_nodes=num_nodes
            )
            assert loops_and_edges is not None
            edge_weight = loops_and_edges
        dst, order = torch.sort(edge_index[1], stable=True)
        return cls(edge_index[0][order], dst, edge_weight[order], num_nodes)

    @property
    def num_edges(self) -> int:
        """Number of directed edges e, self-loops included."""
        return self.src.numel()

    @property
    def edge_index(self) -> Int[Tensor, "2 e"]:
        """The edges as PyG writes them."""
        return torch.stack([self.src, self.dst])

    @cached_property
    def rowptr(self) -> Int[Tensor, " n_plus_1"]:
        """Where the edges that arrive at node u begin: `rowptr[u]:rowptr[u + 1]`."""
        return _pointers(self.dst, self.num_nodes)

    @cached_property
    def _by_source(self) -> tuple[Tensor, Tensor, Tensor]:
        src, order = torch.sort(self.src, stable=True)
        return _pointers(src, self.num_nodes), self.dst[order], order

    @property
    def colptr(self) -> Int[Tensor, " n_plus_1"]:
        """Where the edges that leave node v begin, in the order by source."""
        return self._by_source[0]

    @property
    def dst_by_source(self) -> Int[Tensor, " e"]:
        """Destinations of the edges in the order by source."""
        return self._by_source[1]

    @property
    def order_by_source(self) -> Int[Tensor, " e"]:
        """Permutation that sorts the edges by source."""
        return self._by_source[2]


def _pointers(sorted_nodes: Tensor, num_nodes: int) -> Tensor:
    nodes = torch.arange(num_nodes + 1, device=sorted_nodes.device)
    return torch.searchsorted(sorted_nodes, nodes)
