import pytest
import torch

from robust_diffusion.flows import Heat
from robust_diffusion.operators import Graph
from tests import oracles
from tests.graphs import NODES, build_flow, random_edges, random_graph, random_signal

TIME = torch.tensor(0.0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_derivative_equals_the_dense_one(seed: int, weighted: bool) -> None:
    edge_index, weight = random_edges(seed)
    if not weighted:
        weight = torch.ones_like(weight)
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=NODES)
    z = random_signal(seed)
    dense = oracles.adjacency(edge_index, weight, NODES, self_loops=True)
    torch.testing.assert_close(build_flow(Heat)(TIME, z, graph), oracles.heat(z, dense))


def test_duplicate_edges_count_by_their_total_weight() -> None:
    edge_index = torch.tensor([[0, 0, 2, 1], [1, 1, 1, 1]])
    weight = torch.tensor([1.0, 0.5, 2.0, 3.0], dtype=torch.float64)
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=NODES)
    dense = oracles.adjacency(edge_index, weight, NODES, self_loops=True)
    z = random_signal()
    torch.testing.assert_close(build_flow(Heat)(TIME, z, graph), oracles.heat(z, dense))


def test_nothing_to_train_and_the_state_does_not_matter() -> None:
    flow, graph = build_flow(Heat), random_graph()
    assert list(flow.parameters()) == []
    first, second = (flow.edge_weights(random_signal(seed), graph) for seed in (0, 1))
    assert torch.equal(first, second)


def test_node_without_any_arriving_edge_is_finite() -> None:
    graph = random_graph(self_loops=False)
    graph = Graph(graph.src[3:], graph.dst[3:], graph.weight[3:], NODES)
    assert 0 in torch.bincount(graph.dst, minlength=NODES)
    assert build_flow(Heat)(TIME, random_signal(), graph).isfinite().all()
