import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robust_diffusion.errors import ConfigError
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
    rewired = Rewiring(keep, add, drop)(random_graph(seed), scores_of)
    assert rewired.num_nodes == NODES
    assert (rewired.dst.diff() >= 0).all()
    assert len(set(pairs(rewired))) == rewired.num_edges == rewired.weight.numel()
    assert ((rewired.edge_index >= 0) & (rewired.edge_index < NODES)).all()


@pytest.mark.parametrize("keep", [0.5, 0.01, 0.77, 1.0])
def test_share_of_kept_edges_is_exact(keep: float) -> None:
    graph = large_graph()
    rewired = Rewiring(keep, 0.0, 0.0)(graph, never)
    assert rewired.num_edges == int(keep * graph.num_edges)
    assert set(pairs(rewired)) <= set(pairs(graph))


def test_kept_edges_keep_their_weights() -> None:
    graph = random_graph()
    rewired = Rewiring(0.6, 0.0, 0.0)(graph, never)
    before = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    assert torch.equal(before[rewired.dst, rewired.src], rewired.weight)


def test_added_edges_are_new_of_weight_one() -> None:
    graph = large_graph()
    weighted = Graph(graph.src, graph.dst, graph.weight * 3, graph.num_nodes)
    rewired = Rewiring(1.0, 0.5, 0.0)(weighted, never)
    new = [pair not in set(pairs(graph)) for pair in pairs(rewired)]
    assert 0 < sum(new) <= 60  # n (1 / (1 - 0.5) - 1) are drawn
    expected = [1.0 if is_new else 3.0 for is_new in new]
    assert rewired.weight.tolist() == expected
    assert rewired.num_edges == graph.num_edges + sum(new)


def test_least_similar_edges_are_dropped() -> None:
    graph = large_graph()
    rewired = Rewiring(1.0, 0.0, 0.25)(graph, scores_of)
    scores = scores_of(graph)
    above = scores > torch.quantile(scores, 0.25)
    assert rewired.num_edges == pytest.approx(0.75 * graph.num_edges, abs=1)
    assert {*pairs(rewired)} == {*map(tuple, graph.edge_index[:, above].T.tolist())}


def test_similarity_is_of_kept_and_added_edges() -> None:
    seen: list[Graph] = []

    def record(graph: Graph) -> Tensor:
        seen.append(graph)
        return scores_of(graph)

    graph = large_graph()
    rewired = Rewiring(0.5, 0.3, 0.1)(graph, record)
    assert len(seen) == 1
    assert seen[0].num_edges >= graph.num_edges // 2
    assert set(pairs(rewired)) < set(pairs(seen[0]))


def test_every_draw_is_new_but_the_seed_decides() -> None:
    graph, rewiring = large_graph(), Rewiring()
    torch.manual_seed(1)
    first, second = rewiring(graph, scores_of), rewiring(graph, scores_of)
    torch.manual_seed(1)
    again = rewiring(graph, scores_of)
    assert pairs(first) == pairs(again)
    assert pairs(first) != pairs(second)


def test_gradients_reach_the_weights_of_the_kept_edges() -> None:
    graph = random_graph()
    weight = graph.weight.clone().requires_grad_()
    graph = Graph(graph.src, graph.dst, weight, NODES)
    rewired = Rewiring(0.5, 0.0, 0.0)(graph, never)
    rewired.weight.sum().backward()
    assert weight.grad is not None
    assert weight.grad.sum() == rewired.num_edges == int(0.5 * graph.num_edges)


def test_graph_of_which_no_edge_is_left() -> None:
    none = torch.zeros(2, 0, dtype=torch.long)
    single = Graph.from_edge_index(none, num_nodes=1)
    assert Rewiring()(single, scores_of).num_edges == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("keep_ratio", 0.0),
        ("keep_ratio", 1.1),
        ("add_ratio", -0.1),
        ("add_ratio", 1.0),
        ("drop_quantile", -0.1),
        ("drop_quantile", 1.0),
        ("drop_quantile", float("nan")),
    ],
)
def test_bad_ratio_names_its_key(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"rewiring\.{key}={value}"):
        Rewiring(**{key: value})
