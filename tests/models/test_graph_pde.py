"""Properties of the graph PDE beyond the contract of all models."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import FLOWS, Beltrami, Flow, Grand, Heat
from robust_diffusion.flows.base import AttentionFlow
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import BeltramiGuard, GraphPDE, Rewiring
from tests.graphs import CHANNELS, random_edges, random_signal

CLASSES = 3
SMALL = {"heads": 2, "attention_channels": 6}


def build(
    cls: type[Flow] = Beltrami,
    *,
    flow: dict[str, object] | None = None,
    solver: dict[str, object] | None = None,
    hidden_channels: int | list[int] = 6,
    **options: object,
) -> GraphPDE:
    torch.manual_seed(0)
    small = SMALL if issubclass(cls, AttentionFlow) else {}
    model = GraphPDE(
        CHANNELS,
        hidden_channels,
        CLASSES,
        flow=partial(cls, **{**small, **(flow or {})}),
        solver=Solver(**{"method": "rk4", "num_steps": 1, **(solver or {})}),
        **options,
    )
    return model.double().eval()


@pytest.fixture
def edge_index() -> Tensor:
    return random_edges(symmetric=True)[0]


def test_each_layer_trains_an_attention_of_its_own() -> None:
    names = {name for name, _ in build().named_parameters() if ".attention." in name}
    assert len(names) == 3 * 2  # layers x (key, query)


def test_released_attention_is_drawn_anew_in_training_only(edge_index: Tensor) -> None:
    model = build(Grand, flow={"attention": "resampled"}, dropout=0.0)
    before = [layer.flow.attention.bias for layer in model.layers]
    for training in (False, True):
        model.train(training)(random_signal(), edge_index)
        after = [layer.flow.attention.bias for layer in model.layers]
        assert list(map(torch.equal, before, after)) == [not training] * 3


def test_no_relu_or_dropout_after_the_last_layer(edge_index: Tensor) -> None:
    model, x = build(Heat, num_layers=1, dropout=0.9), random_signal()
    logits = model.train()(x, edge_index)
    assert (logits < 0).any()
    assert torch.equal(logits, model.eval()(x, edge_index))


def test_dropout_and_relu_act_between_the_layers(edge_index: Tensor) -> None:
    model = build(Heat, num_layers=2, dropout=0.5).train()
    seen: list[Tensor] = []
    model.layers[1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(random_signal(), edge_index)
    model.eval()(random_signal(), edge_index)
    trained, evaluated = seen
    assert (trained >= 0).all()
    assert (evaluated >= 0).all()
    lost = (trained == 0) & (evaluated > 0)
    assert lost.any()
    torch.testing.assert_close(trained[trained > 0], 2 * evaluated[trained > 0])


def test_rewiring_draws_a_new_graph_in_each_layer(edge_index: Tensor) -> None:
    model = build(Heat, dropout=0.0, rewiring=Rewiring(keep_ratio=0.5)).train()
    graphs: list[list[list[int]]] = []
    for layer in model.layers:
        layer.flow.register_forward_pre_hook(
            lambda _, given, named: graphs.append((*given, *named.values())[2].edge_index.tolist()),
            with_kwargs=True,
        )
    model(random_signal(), edge_index)
    assert len(graphs) == 3 * 4  # layers x evaluations of one RK4 step
    assert graphs[0] == graphs[3]
    assert graphs[0] != graphs[4] != graphs[8]


def options(module: Any) -> dict[str, Any]:
    """Its own attributes that are no modules or tensors."""
    own = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    return own | {
        f"{key}.{k}": v for key, m in module.named_children() for k, v in options(m).items()
    }


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_by_its_name_is_that_of_the_command_line(
    compose: Callable[..., Any], flow: str
) -> None:
    configured = instantiate(compose(f"flow={flow}").model)(in_channels=5, out_channels=3)
    model = GraphPDE(5, 64, 3, flow=flow)
    assert type(model.layers[0].flow) is type(configured.layers[0].flow)
    assert options(model.layers[0].flow) == options(configured.layers[0].flow)
    own, same = ({**vars(of.layers[0].solver), "_watch": None} for of in (model, configured))
    assert own == same
    assert model.state_dict().keys() == configured.state_dict().keys()


def test_defaults_are_the_papers() -> None:
    configured = OmegaConf.load(CONFIG_DIR / "model" / "base" / "graph_pde.yaml")
    for cls in (GraphPDE, BeltramiGuard):
        layers = cls(5, out_channels=3).layers
        assert all(isinstance(layer.flow, Beltrami) for layer in layers)
        assert {layer.linear.out_features for layer in layers[:-1]} == {configured.hidden_channels}
        with pytest.raises(ConfigError, match="out_channels"):
            cls(5, 3)
        with pytest.raises(ConfigError, match="flow=beltrmi"):
            cls(5, 8, 3, flow="beltrmi")


def test_without_a_guard_all_edges_reach_every_layer(edge_index: Tensor) -> None:
    model, seen = build(), []
    for layer in model.layers:
        layer.register_forward_hook(lambda _, inputs, output: seen.append((inputs[1], output[1])))
    model(random_signal(), edge_index)
    assert all(after is before for before, after in seen)
