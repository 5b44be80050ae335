import pytest
import torch

from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Grand, MeanCurvature, PLaplacian
from robust_diffusion.operators import Graph, segment_sum
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


@pytest.mark.parametrize("norm", NORMS)
def test_p_of_one_is_mean_curvature(norm: str) -> None:
    z, graph = random_signal(), random_graph()
    options = {"gradient_norm": norm, "gradient_floor": 0.3}
    flow, curvature = build_flow(PLaplacian, p=1.0, **options), build_flow(MeanCurvature, **options)
    assert torch.equal(flow(TIME, z, graph), curvature(TIME, z, graph))


def test_p_of_two_is_grand_divided_by_the_edges_that_arrive() -> None:
    z, graph = random_signal(), random_graph(weighted=False)
    flow, grand = build_flow(PLaplacian, p=2.0), build_flow(Grand)
    arriving = segment_sum(graph.weight, graph)[:, None]
    assert arriving.unique().numel() > 1
    torch.testing.assert_close(flow(TIME, z, graph), grand(TIME, z, graph) / arriving)


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


@pytest.mark.parametrize("modulation", MODULATIONS)
def test_edges_at_a_steep_node_weigh_more_above_p_of_two(modulation: str) -> None:
    graph = random_graph(weighted=False)
    norm = torch.linspace(0.5, 2.0, NODES, dtype=torch.float64)
    scores = build_flow(PLaplacian, p=4.0, modulation=modulation).modulation_scores(
        norm.reciprocal(), graph
    )
    own = 0 if modulation == "softmax" else norm[graph.dst].square()
    torch.testing.assert_close(scores, own + norm[graph.src].square())


@pytest.mark.parametrize("modulation", MODULATIONS)
def test_gradients_stay_finite_in_single_precision_at_a_tiny_floor(modulation: str) -> None:
    graph = random_graph(weighted=False)
    graph = Graph(graph.src, graph.dst, graph.weight.float(), NODES)
    flow = build_flow(PLaplacian, p=1.0, modulation=modulation, gradient_floor=1e-6).float()
    z = (torch.ones(NODES, CHANNELS) + 1e-7 * random_signal().float()).requires_grad_()
    out = flow(TIME, z, graph)
    out.square().sum().backward()
    assert out.isfinite().all()
    assert z.grad is not None
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("p", [4.0, 8.0])
def test_steep_signals_stay_finite_in_single_precision(p: float) -> None:
    graph = random_graph(weighted=False)
    graph = Graph(graph.src, graph.dst, graph.weight.float(), NODES)
    flow = build_flow(PLaplacian, p=p).float()
    z = (1e3 * random_signal().float()).requires_grad_()
    out = flow(TIME, z, graph)
    out.sum().backward()
    assert out.isfinite().all()
    assert z.grad is not None
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("options", [{"p": 4.0}, {"modulation": "power"}], ids=str)
def test_its_own_options_change_the_derivative(options: dict[str, object]) -> None:
    z, graph = random_signal(), random_graph()
    default, changed = build_flow(PLaplacian), build_flow(PLaplacian, **options)
    assert (default(TIME, z, graph) - changed(TIME, z, graph)).abs().max() > 1e-6


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("p", 0.5),
        ("p", float("inf")),
        ("p", "3"),
        ("modulation", "powers"),
        ("gradient_ceiling", 0.01),
    ],
)
def test_bad_option_names_its_key(key: str, value: object) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=rf"flow\.{key}={value}"):
        PLaplacian(CHANNELS, **{key: value})
