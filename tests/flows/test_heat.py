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


def test_node_without_any_arriving_edge_is_finite() -> None:
    graph = random_graph(self_loops=False)
    graph = Graph(graph.src[3:], graph.dst[3:], graph.weight[3:], NODES)
    assert 0 in torch.bincount(graph.dst, minlength=NODES)
    assert build_flow(Heat)(TIME, random_signal(), graph).isfinite().all()


def test_frozen_attention_is_that_of_the_initial_state() -> None:
    flow, graph, z = build_flow(Heat, weights="frozen_attention"), random_graph(), random_signal()
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    matrix, bias = flow.attention.weight, flow.attention.bias
    attended = oracles.attention(z, dense, matrix, matrix, 4, bias)
    frozen = flow.prepare(z, graph)
    later = random_signal(1)
    torch.testing.assert_close(
        flow(TIME, later, frozen), oracles.grand(later, attended), rtol=1e-6, atol=1e-8
    )
    torch.testing.assert_close(flow.similarity(z, graph), frozen.weight)
    assert list(flow.parameters()) == []


def test_uniform_weights_run_on_the_graph_as_it_is() -> None:
    flow, graph = build_flow(Heat), random_graph()
    state = torch.get_rng_state()
    flow.resample()
    assert torch.equal(torch.get_rng_state(), state)
    assert flow.prepare(random_signal(), graph) is graph


def test_resample_reaches_the_frozen_attention() -> None:
    flow = build_flow(Heat, weights="frozen_attention")
    before = flow.attention.bias
    flow.resample()
    assert not torch.equal(flow.attention.bias, before)
