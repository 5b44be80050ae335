import pytest
import torch

from robust_diffusion.flows import Grand, PLaplacian
from robust_diffusion.operators import Graph
from tests import oracles
from tests.graphs import CHANNELS, NODES, build_flow, random_edges, random_graph, random_signal

TIME = torch.tensor(0.0)
MODULATIONS = ["softmax", "power", "power_without_row_sum"]
NORMS = ["edges", "residual"]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("ceiling", [None, 2.0])
@pytest.mark.parametrize("p", [1.0, 2.5, 3.0, 4.0])
@pytest.mark.parametrize("modulation", MODULATIONS)
def test_derivative_equals_the_dense_one_with_all_terms(
    modulation: str, p: float, ceiling: float | None, norm: str, weighted: bool
) -> None:
    edge_index, weight = random_edges()
    if not weighted:
        weight = torch.ones_like(weight)
    bounds = {"gradient_floor": 0.05, "gradient_ceiling": ceiling}
    flow = build_flow(PLaplacian, p=p, modulation=modulation, gradient_norm=norm, **bounds)
    z = random_signal()
    dense = oracles.adjacency(edge_index, weight, NODES, self_loops=True)
    key, query = flow.attention.key.weight, flow.attention.query.weight
    attended = oracles.attention(z, dense, key, query, 2)
    norms = oracles.gradient_norm(z, attended, norm, 0.05, ceiling or torch.inf)
    expected = oracles.p_laplacian(z, dense, attended, norms, p, modulation)
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=NODES)
    torch.testing.assert_close(flow(TIME, z, graph), expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_p_of_two_without_softmax_is_grand_at_twice_its_speed(weighted: bool) -> None:
    z, graph = random_signal(), random_graph(weighted=weighted)
    flow, grand = build_flow(PLaplacian, p=2.0, modulation="power"), build_flow(Grand)
    torch.testing.assert_close(flow(TIME, z, graph), 2 * grand(TIME, z, graph))


def test_without_softmax_a_constant_signal_stays_constant() -> None:
    z = torch.tensor([3.0, -2.0, 0.0, 1e3, 1e-3], dtype=torch.float64).expand(NODES, CHANNELS)
    derivative = build_flow(PLaplacian, modulation="power")(TIME, z, random_graph())
    torch.testing.assert_close(derivative, torch.zeros_like(z), rtol=0, atol=1e-9)


def test_without_row_sum_a_constant_signal_grows_as_in_the_released_code() -> None:
    """B is twice the gradient norm's floor on every edge, and A sums to 1, so 2 sqrt(floor) - 1."""
    z = torch.full((NODES, CHANNELS), 3.0, dtype=torch.float64)
    flow = build_flow(PLaplacian, modulation="power_without_row_sum", gradient_floor=0.04)
    torch.testing.assert_close(flow(TIME, z, random_graph()), (2 * 0.2 - 1) * z)
