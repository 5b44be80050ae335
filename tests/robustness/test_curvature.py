"""The curvature term of a trained network, measured."""

from functools import partial

import pytest
import torch
from torch_geometric.data import Data

from robust_diffusion.flows import Beltrami, Heat, UniformModulation
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import MLP, GraphPDE
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


def test_beltrami_is_measured_in_each_layer(graph: Data) -> None:
    found = curvature_of(network(Beltrami), graph)
    assert list(found["layers"]) == ["layers.0.flow", "layers.1.flow"]
    for quantiles in found["layers"].values():
        assert list(quantiles) == ["50%", "90%", "99%", "100%"]
        assert 0 < quantiles["50%"] <= quantiles["90%"] <= quantiles["100%"]
    assert 0 <= found["same_predictions"] <= 1


def test_first_layer_is_measured_at_its_initial_state(graph: Data) -> None:
    model = network(Beltrami)
    layer = model.layers[0]
    edges = Graph.from_edge_index(graph.edge_index, num_nodes=12, dtype=torch.float32)
    z, edges, _ = layer.enter(graph.x, edges)
    expected = layer.flow.curvature(z, edges).max().detach()
    found = curvature_of(model, graph)["layers"]["layers.0.flow"]["100%"]
    assert found == pytest.approx(float(expected))


@pytest.mark.parametrize("model", [MLP(5, 8, 3).eval(), network(Heat), network(UniformModulation)])
def test_a_model_without_curvature_has_nothing_to_measure(
    model: torch.nn.Module, graph: Data
) -> None:
    assert curvature_of(model, graph) == {}


def test_uniform_modulation_keeps_the_weights_and_the_model(graph: Data) -> None:
    model = network(Beltrami)
    uniform = with_uniform_modulation(model)
    control = network(UniformModulation)
    control.load_state_dict(model.state_dict())
    assert torch.equal(uniform(graph.x, graph.edge_index), control(graph.x, graph.edge_index))
    assert all(isinstance(layer.flow, Beltrami) for layer in model.layers)


def test_predictions_that_change_are_counted(graph: Data) -> None:
    model = network(Beltrami)
    for layer in model.layers:
        layer.flow.gradient_floor = 1e-6
        layer.linear.weight.data *= 0.01
    with torch.no_grad():
        own = model(graph.x, graph.edge_index).argmax(1)
        other = with_uniform_modulation(model)(graph.x, graph.edge_index).argmax(1)
    same = float((own == other)[graph.mask].double().mean())
    assert curvature_of(model, graph)["same_predictions"] == same
