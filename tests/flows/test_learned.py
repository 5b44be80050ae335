import pytest
import torch

from robust_diffusion.flows import Grand, Learned
from tests import oracles
from tests.backends import BACKENDS, backend
from tests.graphs import NODES, build_flow, random_graph, random_signal

TIME = torch.tensor(0.0)


def trained(**options: object) -> Learned:
    """One whose modulation is not what it begins as."""
    flow = build_flow(Learned, **options)
    assert isinstance(flow, Learned)
    for parameter in (flow.score.weight, flow.score.bias, flow.hidden.weight):
        torch.nn.init.normal_(parameter)
    return flow


@pytest.mark.parametrize("name", BACKENDS)
def test_equals_the_sum_over_pairs(name: str) -> None:
    flow, graph, z = trained(rate=0.7), random_graph(), random_signal()
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    key, query = flow.attention.key.weight, flow.attention.query.weight
    attended = oracles.attention(z, dense, key, query, 2)
    expected = oracles.learned(z, dense, attended, torch.tensor(0.7), flow.hidden, flow.score)
    with backend(name):
        torch.testing.assert_close(flow(TIME, z, graph), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("rate", [0.5, 1.0, 40.0])
def test_it_begins_as_grand(rate: float) -> None:
    z, graph = random_signal(), random_graph()
    grand, learned = build_flow(Grand, rate=rate), build_flow(Learned, rate=rate)
    learned.attention.load_state_dict(grand.attention.state_dict())
    torch.testing.assert_close(learned(TIME, z, graph), grand(TIME, z, graph), rtol=1e-5, atol=1e-9)


def test_everything_is_learned() -> None:
    flow = trained()
    (flow(TIME, random_signal(), random_graph()) * random_signal(1)).sum().backward()
    for name, parameter in flow.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-9, name


def test_the_modulation_leaves_its_beginning() -> None:
    flow = build_flow(Learned)
    assert isinstance(flow, Learned)
    z, graph = random_signal(), random_graph()
    optimizer = torch.optim.Adam(flow.parameters(), lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        (flow(TIME, z, graph) * random_signal(1)).sum().backward()
        optimizer.step()
    assert flow.modulation(z, graph).std() > 0.01
    assert flow.rate > 0


def test_it_can_close_edges_between_features_that_differ() -> None:
    flow, graph = build_flow(Learned), random_graph(weighted=False)
    assert isinstance(flow, Learned)
    torch.nn.init.zeros_(flow.hidden.weight)
    torch.nn.init.zeros_(flow.hidden.bias)
    flow.hidden.weight.data[0, 2], flow.score.weight.data[0, 0] = 1.0, -60.0
    z = torch.zeros_like(random_signal())
    z[0] = 50.0
    to_others = (graph.src == 0) & (graph.dst != 0)
    modulation = flow.modulation(z, graph)
    assert to_others.any()
    assert (modulation[to_others] < 1e-9).all()
    assert (modulation[(graph.src != 0) & (graph.dst != 0)] == 0.5).all()
