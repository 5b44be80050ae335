"""The timed step is that of a forward pass in its second layer."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion import models
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Beltrami, Heat, count_evaluations
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models.hidden_step import HasHiddenStep
from robust_diffusion.operators import Graph, spmm, symmetric_weights
from tests.graphs import NODES, random_signal
from tests.models.small import HIDDEN, build_model, edges

PDE: dict[str, Any] = {"flow": Beltrami, "solver": Solver("rk4", num_steps=2)}
STACKS: dict[str, dict[str, Any]] = {
    "GCN": {},
    "GAT": {"heads": 2},
    "GIN": {},
    "GNNGuard": {},
    "GraphSAGE": {},
    "GCNSVD": {"rank": 3},
    "MLP": {},
}


def second_layer(model: nn.Module, x: Tensor, edge_index: Tensor) -> Tensor:
    """Input of the third layer's norm in a forward pass."""
    seen = []
    handle = model.norms[2].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(x, edge_index)
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("name", STACKS)
def test_a_stacks_step_is_its_second_layer(name: str) -> None:
    model, (edge_index, _) = build_model(getattr(models, name), **STACKS[name]), edges()
    assert isinstance(model, HasHiddenStep)
    step = model.hidden_step(random_signal(), edge_index)
    expected = second_layer(model, random_signal(), edge_index)
    torch.testing.assert_close(model.activation(step.run()), expected)
    assert torch.equal(step.run(), step.run())
    assert (step.kind, step.width) == ("aggregation", HIDDEN * (2 if name == "GAT" else 1))


def test_a_pdes_step_is_its_second_diffusion() -> None:
    model, (edge_index, _) = build_model(models.BeltramiGuard, **PDE), edges()
    seen: list[Tensor] = []
    handle = model.layers[1].register_forward_hook(lambda _, __, output: seen.append(output[0]))
    model(random_signal(), edge_index)
    handle.remove()
    step = model.hidden_step(random_signal(), edge_index)
    with count_evaluations(model) as evaluations:
        torch.testing.assert_close(step.run(), seen[0])
    assert evaluations.total == 2 * 4
    assert (step.kind, step.width) == ("diffusion", HIDDEN)


def test_the_step_of_appnp_is_one_propagation() -> None:
    model, (edge_index, _) = build_model(models.APPNP, teleport=0.2), edges()
    hidden = torch.relu(model.layers[0](model.norms[0](random_signal())))
    graph = Graph.from_edge_index(edge_index, num_nodes=NODES, dtype=torch.float64)
    step = model.hidden_step(random_signal(), edge_index)
    expected = 0.8 * spmm(symmetric_weights(graph), hidden, graph) + 0.2 * hidden
    torch.testing.assert_close(step.run(), expected)
    assert (step.kind, step.width) == ("aggregation", HIDDEN)


def test_the_step_of_robust_gcn_is_a_convolution() -> None:
    model, (edge_index, _) = build_model(models.RobustGCN), edges()
    seen: list[Tensor] = []
    model.mean[2].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(random_signal(), edge_index)
    step = model.hidden_step(random_signal(), edge_index)
    torch.testing.assert_close(nn.functional.elu(step.run()), seen[0])
    assert (step.kind, step.width) == ("aggregation", HIDDEN)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("GCN", {}),
        ("APPNP", {}),
        ("RobustGCN", {}),
        ("GraphPDE", {"flow": Heat, "solver": Solver("euler", num_steps=1)}),
    ],
)
def test_two_layers_are_too_few(name: str, options: dict[str, Any]) -> None:
    model = build_model(getattr(models, name), num_layers=2, **options)
    with pytest.raises(ConfigError, match=r"model\.num_layers=2"):
        model.hidden_step(random_signal(), edges()[0])
