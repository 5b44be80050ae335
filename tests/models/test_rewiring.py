from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robust_diffusion.models import Rewiring
from robust_diffusion.operators import Graph
from tests import oracles
from tests.graphs import NODES, random_graph


def scores_of(graph: Graph) -> Tensor:
    """A different score for every pair of nodes."""
    return (graph.dst * graph.num_nodes + graph.src).double()


def never(graph: Graph) -> Tensor:
    raise AssertionError("not needed")


def pairs(graph: Graph) -> list[tuple[int, int]]:
    return [(source, target) for source, target in graph.edge_index.T.tolist()]


def large_graph() -> Graph:
    torch.manual_seed(0)
    dense = (torch.rand(60, 60) < 0.1).fill_diagonal_(1)
    return Graph.from_edge_index(dense.nonzero().T, num_nodes=60, dtype=torch.float64)


@settings(max_examples=30)
@given(
    keep=st.floats(0.05, 1.0),
    add=st.floats(0.0, 0.9),
    drop=st.floats(0.0, 0.9),
    seed=st.integers(0, 10**6),
)
def test_result_is_a_sorted_graph_without_duplicates(
    keep: float, add: float, drop: float, seed: int
) -> None:
    torch.manual_seed(seed)
    scored: list[Graph] = []
    rewired = Rewiring(keep, add, drop)(
        random_graph(seed), lambda graph: (scored.append(graph), scores_of(graph))[1]
    )
    for graph in scored:  # of kept and added edges
        assert set(pairs(rewired)) <= set(pairs(graph))
    assert rewired.num_nodes == NODES
    assert (rewired.dst.diff() >= 0).all()
    assert len(set(pairs(rewired))) == rewired.num_edges == rewired.weight.numel()
    assert ((rewired.edge_index >= 0) & (rewired.edge_index < NODES)).all()


@pytest.mark.parametrize("keep", [0.01, 0.77, 1.0])
def test_share_of_kept_edges_is_exact_and_keeps_weights_and_gradients(keep: float) -> None:
    graph = large_graph()
    weight = (1 + torch.rand_like(graph.weight)).requires_grad_()
    rewired = Rewiring(keep, 0.0, 0.0)(replace(graph, weight=weight), never)
    assert rewired.num_edges == int(keep * graph.num_edges)
    before = oracles.adjacency(graph.edge_index, weight.detach(), graph.num_nodes)
    assert torch.equal(before[rewired.dst, rewired.src], rewired.weight)
    rewired.weight.sum().backward()
    assert weight.grad is not None
    assert weight.grad.sum() == rewired.num_edges


def test_added_edges_are_new_of_weight_one() -> None:
    graph = large_graph()
    weighted = replace(graph, weight=graph.weight * 3)
    rewired = Rewiring(1.0, 0.5, 0.0)(weighted, never)
    new = [pair not in set(pairs(graph)) for pair in pairs(rewired)]
    assert 0 < sum(new) <= 60  # n (1 / (1 - 0.5) - 1) are drawn
    assert rewired.weight.tolist() == [1.0 if is_new else 3.0 for is_new in new]
    assert rewired.num_edges == graph.num_edges + sum(new)


def test_least_similar_edges_are_dropped() -> None:
    graph = large_graph()
    rewired, scores = Rewiring(1.0, 0.0, 0.25)(graph, scores_of), scores_of(graph)
    above = scores > torch.quantile(scores, 0.25)
    assert rewired.num_edges == pytest.approx(0.75 * graph.num_edges, abs=1)
    assert {*pairs(rewired)} == {*map(tuple, graph.edge_index[:, above].T.tolist())}


def test_every_draw_is_new_but_the_seed_decides() -> None:
    graph, rewiring = large_graph(), Rewiring()
    torch.manual_seed(1)
    first, second = rewiring(graph, scores_of), rewiring(graph, scores_of)
    torch.manual_seed(1)
    again = rewiring(graph, scores_of)
    assert pairs(first) == pairs(again)
    assert pairs(first) != pairs(second)


def test_graph_of_which_no_edge_is_left() -> None:
    none = torch.zeros(2, 0, dtype=torch.long)
    single = Graph.from_edge_index(none, num_nodes=1)
    assert Rewiring()(single, scores_of).num_edges == 0
