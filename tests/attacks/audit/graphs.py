"""A clean graph, an injection and a modification of it, and ways to break them."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from robust_diffusion.attacks.audit import Violation, audit
from tests.graphs import both_ways

N, WIDTH = 40, 4
TARGETS = torch.arange(0, N, 2)
INJECTION = {
    "max_injected_nodes": 3,
    "max_edges_per_injected_node": 4,
    "max_injected_edges": 12,
    "feature_limits": (-0.9, 0.9),
}
MODIFICATION = {
    "node_ratio": 0.25,
    "edge_ratio": 0.2,
    "epsilon": 0.1,
    "feature_limits": (-0.9, 0.9),
}


@dataclass(frozen=True, eq=False)
class G:
    x: Tensor
    edge_index: Tensor


# A ring with chords, features within 0.8 of 0.
RING = [(u, (u + 1) % N) for u in range(N)] + [(u, u + 10) for u in range(0, 30, 3)]
X = torch.rand(N, WIDTH, generator=torch.Generator().manual_seed(0)) * 1.6 - 0.8
CLEAN = G(X, both_ways(RING))


def injected() -> G:
    """Three new nodes with four edges each to targets, features up to the limits."""
    x = torch.full((3, WIDTH), 0.9)
    x[1] = -0.9
    edges = [(N + i, int(TARGETS[4 * i + j])) for i in range(3) for j in range(4)]
    return G(torch.cat([CLEAN.x, x]), torch.cat([CLEAN.edge_index, both_ways(edges)], 1))


def modified() -> G:
    """Five of twenty targets changed by 0.1, one edge removed and one added at targets."""
    x = CLEAN.x.clone()
    x[TARGETS[:5]] += 0.1
    x[TARGETS[:5]] = x[TARGETS[:5]].clamp(-0.9, 0.9)
    return G(x, with_edges(without_edges(CLEAN.edge_index, (0, 1)), (2, 20)))


def without_edges(edge_index: Tensor, *edges: tuple[int, int]) -> Tensor:
    gone = both_ways(edges)
    drop = (edge_index[:, :, None] == gone[:, None]).all(0).any(1)
    assert drop.sum() == gone.size(1)
    return edge_index[:, ~drop]


def with_edges(edge_index: Tensor, *edges: tuple[int, int]) -> Tensor:
    return torch.cat([edge_index, both_ways(edges)], 1)


def inject_audit(graph: G, **limits: Any) -> list[Violation]:
    return audit(CLEAN, graph, kind="injection", target_nodes=TARGETS, **(INJECTION | limits))


def modify_audit(graph: G, **limits: Any) -> list[Violation]:
    return audit(CLEAN, graph, kind="modification", target_nodes=TARGETS, **(MODIFICATION | limits))


def codes(violations: list[Violation]) -> set[str]:
    for violation in violations:
        assert "\n" not in violation.message
        assert len(violation.message) < 250
    names = [violation.code for violation in violations]
    assert len(set(names)) == len(names)
    return set(names)


def set_feature(graph: G, node: int, value: float, column: int = 1) -> G:
    x = graph.x.clone()
    x[node, column] = value
    return replace(graph, x=x)


def add_directed(graph: G, *edges: tuple[int, int]) -> G:
    more = torch.tensor(edges, dtype=torch.int64).t()
    return replace(graph, edge_index=torch.cat([graph.edge_index, more], 1))


def add_edges(graph: G, *edges: tuple[int, int]) -> G:
    return replace(graph, edge_index=with_edges(graph.edge_index, *edges))


def add_nodes(graph: G, count: int) -> G:
    return replace(graph, x=torch.cat([graph.x, torch.zeros(count, WIDTH)]))
