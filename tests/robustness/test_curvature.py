"""The curvature term of a trained network, measured."""

from functools import partial

import pytest
import torch
from torch_geometric.data import Data

from robust_diffusion.flows import Beltrami, UniformModulation
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GraphPDE
from robust_diffusion.operators import Graph
from robust_diffusion.robustness.curvature import curvature_of, with_uniform_modulation


@pytest.fixture
def graph() -> Data:
    torch.manual_seed(0)
    edges = torch.randint(0, 12, (2, 40))
    edges = edges[:, edges[0] != edges[1]]
    edge_index = torch.cat([edges, edges.flip(0)], 1).unique(dim=1)
    return Data(x=torch.randn(12, 5), edge_index=edge_index, mask=torch.arange(12) < 8)


def network(flow: type) -> GraphPDE:
    torch.manual_seed(1)
    return GraphPDE(
        5, 8, 3, flow=partial(flow), solver=Solver("rk4", num_steps=1), num_layers=2
    ).eval()


def test_beltrami_is_measured_in_each_layer_from_its_initial_state(graph: Data) -> None:
    model = network(Beltrami)
    layer = model.layers[0]
    edges = Graph.from_edge_index(graph.edge_index, num_nodes=12, dtype=torch.float32)
    z, edges, _ = layer.enter(graph.x, edges)
    expected = layer.flow.curvature(z, edges).max().detach()
    found = curvature_of(model, graph)["layers"]
    assert list(found) == ["layers.0.flow", "layers.1.flow"]
    assert found["layers.0.flow"]["100%"] == pytest.approx(float(expected))
    for quantiles in found.values():
        assert 0 < quantiles["50%"] <= quantiles["90%"] <= quantiles["99%"] <= quantiles["100%"]


def test_predictions_that_change_under_uniform_modulation_are_counted(graph: Data) -> None:
    model, control = network(Beltrami), network(UniformModulation)
    for layer in model.layers:
        layer.flow.gradient_floor = 1e-6
        layer.linear.weight.data *= 0.01
    control.load_state_dict(model.state_dict())
    uniform = with_uniform_modulation(model)
    assert all(isinstance(layer.flow, Beltrami) for layer in model.layers)
    with torch.no_grad():
        own, other, expected = (of(graph.x, graph.edge_index) for of in (model, uniform, control))
    assert torch.equal(other, expected)
    same = (own.argmax(1) == other.argmax(1))[graph.mask].double().mean()
    assert curvature_of(model, graph)["same_predictions"] == same
