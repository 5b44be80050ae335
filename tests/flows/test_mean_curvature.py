import pytest
import torch

from robust_diffusion.flows import MeanCurvature
from robust_diffusion.operators import Graph
from tests import oracles
from tests.graphs import NODES, build_flow, random_edges, random_graph, random_signal

TIME = torch.tensor(0.0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("spectral_norm", [False, True])
@pytest.mark.parametrize("attention", ["trained", "resampled"])
@pytest.mark.parametrize("norm", ["edges", "residual"])
def test_derivative_equals_the_dense_one_with_all_terms(
    weighted: bool, spectral_norm: bool, attention: str, norm: str
) -> None:
    edge_index, weight = random_edges()
    if not weighted:
        weight = torch.ones_like(weight)
    flow = build_flow(
        MeanCurvature,
        spectral_norm=spectral_norm,
        attention=attention,
        gradient_norm=norm,
        gradient_floor=0.05,
    )
    z = random_signal()
    if attention == "trained":
        key, query, bias = flow.attention.key.weight, flow.attention.query.weight, 0.0
    else:
        key = query = flow.attention.weight
        bias = flow.attention.bias
    dense = oracles.adjacency(edge_index, weight, NODES, self_loops=True)
    attended = oracles.attention(z, dense, key, query, 2, bias)
    norms = oracles.gradient_norm(z, attended, norm, 0.05)
    expected = oracles.mean_curvature(z, dense, attended, norms)
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=NODES)
    torch.testing.assert_close(flow(TIME, z, graph), expected)


def test_gradients_stay_finite_in_single_precision_at_a_tiny_floor() -> None:
    graph = random_graph(weighted=False)
    graph = Graph(graph.src, graph.dst, graph.weight.float(), NODES)
    flow = build_flow(MeanCurvature, gradient_floor=1e-6).float()
    z = (torch.ones(NODES, 5) + 1e-7 * random_signal().float()).requires_grad_()
    out = flow(TIME, z, graph)
    out.square().sum().backward()
    assert out.isfinite().all()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_smooth_neighbours_weigh_more() -> None:
    flow, graph = build_flow(MeanCurvature), random_graph(weighted=False)
    inverse = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], dtype=torch.float64)
    assert torch.equal(flow.modulation_scores(inverse, graph), inverse[graph.src])
