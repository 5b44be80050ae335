import pytest
import torch

from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Grand
from robust_diffusion.operators import Graph
from tests import oracles
from tests.graphs import (
    CHANNELS,
    NODES,
    build_flow,
    random_edges,
    random_graph,
    random_signal,
    without_type_checks,
)

TIME = torch.tensor(0.0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("spectral_norm", [False, True])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_derivative_equals_the_dense_one(weighted: bool, spectral_norm: bool, rate: float) -> None:
    edge_index, weight = random_edges()
    if not weighted:
        weight = torch.ones_like(weight)
    flow = build_flow(Grand, spectral_norm=spectral_norm, rate=rate)
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=NODES)
    z = random_signal()
    dense = oracles.adjacency(edge_index, weight, NODES, self_loops=True)
    attention = flow.attention
    attended = oracles.attention(z, dense, attention.key.weight, attention.query.weight, 2)
    torch.testing.assert_close(flow(TIME, z, graph), oracles.grand(z, attended, rate))


def test_derivative_with_resampled_attention_equals_the_dense_one() -> None:
    edge_index, weight = random_edges()
    flow, z = build_flow(Grand, attention="resampled"), random_signal()
    dense = oracles.adjacency(edge_index, weight, NODES, self_loops=True)
    matrix, bias = flow.attention.weight, flow.attention.bias
    attended = oracles.attention(z, dense, matrix, matrix, 2, bias)
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=NODES)
    torch.testing.assert_close(flow(TIME, z, graph), oracles.grand(z, attended))


def test_edge_weights_are_the_attention() -> None:
    flow, z, graph = build_flow(Grand), random_signal(), random_graph()
    assert torch.equal(flow.edge_weights(z, graph), flow.attention(z, graph))


def test_resample_reaches_the_attention() -> None:
    flow = build_flow(Grand, attention="resampled")
    before = flow.attention.bias
    flow.resample()
    assert not torch.equal(flow.attention.bias, before)


@pytest.mark.parametrize("rate", [0.0, -1.0, None])
def test_bad_rate_names_its_key(rate: object) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=rf"flow\.rate={rate}"):
        Grand(CHANNELS, rate=rate)
