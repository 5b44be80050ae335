"""Check that edges make a simple undirected graph."""

import torch
from jaxtyping import Int
from torch import Tensor

from robust_diffusion.attacks.audit.violation import Violation, first, nodes, pairs

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class UndirectedEdges:
    """The undirected edges of a graph, each once, whatever is wrong with its edge list.

    Sorting is all that costs more than linear time.

    Args:
        edge_index: Edges in any order and any number type.
        num_nodes: Number of nodes; edges that name others are left out.
        base: Edge u < v has the number u base + v; at least `num_nodes`, the same for two graphs
            whose edges are to be compared.

    Attributes:
        ids: The edges' numbers, ascending.
        violations: What is wrong with the list.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, base: int) -> None:
        self.base = base
        self.ids = torch.empty(0, dtype=torch.int64)
        self.violations: list[Violation] = []
        if edge_index.ndim != 2 or edge_index.size(0) != 2:
            self._found("edges_shape", f"edges have shape {tuple(edge_index.shape)}, not (2, e)")
            return
        if edge_index.dtype != torch.int64:
            self._found("edges_dtype", f"edges are of type {edge_index.dtype}, not torch.int64")
            if edge_index.dtype not in INTEGERS:
                return
        edges = edge_index.detach().cpu().long()
        self.ids = self._undirected(self._without_loops(self._in_range(edges, num_nodes)))

    def ends(self, ids: Int[Tensor, " k"] | None = None) -> Int[Tensor, "2 k"]:
        """Both ends of edges, the smaller node first; of all edges if none are named."""
        ids = self.ids if ids is None else ids
        return torch.stack([ids // self.base, ids % self.base])

    def without(self, other: "UndirectedEdges") -> Int[Tensor, " k"]:
        """Numbers of the edges that another graph lacks."""
        return self.ids[~_contains(other.ids, self.ids)]

    def _found(self, code: str, message: str) -> None:
        self.violations.append(Violation(code, message))

    def _in_range(self, edges: Tensor, num_nodes: int) -> Tensor:
        wrong = ((edges < 0) | (edges >= num_nodes)).any(0)
        if count := int(wrong.sum()):
            self._found(
                "index_out_of_range",
                f"{count} edges name a node that is not there, the first "
                f"{first(pairs(edges[:, wrong]), count)}; nodes are 0..{num_nodes - 1}",
            )
            edges = edges[:, ~wrong]
        return edges

    def _without_loops(self, edges: Tensor) -> Tensor:
        loops = edges[0] == edges[1]
        if count := int(loops.sum()):
            self._found(
                "self_loop",
                f"{count} edges run from a node to itself, the first at "
                f"{first(nodes(edges[0, loops]), count)}; none may",
            )
            edges = edges[:, ~loops]
        return edges

    def _undirected(self, edges: Tensor) -> Tensor:
        directed = _sorted(edges[0] * self.base + edges[1])
        again = torch.zeros(directed.numel(), dtype=torch.bool)
        again[1:] = directed[1:] == directed[:-1]
        if count := int(again.sum()):
            self._found(
                "duplicate_edge",
                f"{count} edges are listed before, the first "
                f"{first(pairs(self.ends(directed[again])), count)}; each may be there once",
            )
            directed = directed[~again]
        src, dst = self.ends(directed)
        up = src < dst
        there = directed[up]
        back = _sorted(dst[~up] * self.base + src[~up])
        if torch.equal(there, back):
            return there
        no_way_back = there[~_contains(back, there)]
        no_way_there = back[~_contains(there, back)]
        one_way = torch.cat([self.ends(no_way_back), self.ends(no_way_there).flip(0)], 1)
        count = one_way.size(1)
        self._found(
            "one_way_edge",
            f"{count} edges lack their reverse, the first {first(pairs(one_way), count)}; the "
            "graph must be undirected",
        )
        return _sorted(torch.cat([there, no_way_there]))


def _sorted(ids: Tensor) -> Tensor:
    # Most edge lists are sorted already, and to see that is cheap.
    return ids if (ids[1:] >= ids[:-1]).all() else ids.sort().values


def _contains(haystack: Tensor, needles: Tensor) -> Tensor:
    """For each needle whether it is in the sorted haystack."""
    if haystack.numel() == 0:
        return torch.zeros(needles.numel(), dtype=torch.bool)
    position = torch.searchsorted(haystack, needles).clamp_(max=haystack.numel() - 1)
    return haystack[position] == needles
