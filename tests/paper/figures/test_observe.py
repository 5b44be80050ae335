from collections.abc import Callable
from typing import Any

import pytest
import torch
from hydra.utils import instantiate

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.figures.observe import observe

Compose = Callable[..., Any]

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0, 4, 4], [1, 0, 2, 1, 3, 2, 0, 3, 4, 0]])
"""A ring of four nodes, a self-loop, and one edge that runs one way only."""


def build(compose: Compose, *overrides: str) -> torch.nn.Module:
    torch.manual_seed(0)
    cfg = compose("model.hidden_channels=6", *overrides)
    model = instantiate(cfg.model)(in_channels=5, out_channels=3)
    assert isinstance(model, torch.nn.Module)
    return model


def features() -> torch.Tensor:
    return torch.randn(5, 5, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "flow", ["heat", "heat_plus", "grand", "mean_curvature", "beltrami", "p_laplacian"]
)
@pytest.mark.parametrize("fidelity", ["paper", "released"])
def test_weights_are_those_of_the_state_after_diffusion(
    compose: Compose, flow: str, fidelity: str
) -> None:
    seen = observe(build(compose, f"flow={flow}", f"fidelity={fidelity}"), features(), EDGES)
    assert (seen.layer, seen.z.shape) == (1, (5, 6))
    pairs = set(zip(seen.src.tolist(), seen.dst.tolist(), strict=True))
    assert pairs == {(u, v) for u, v in EDGES.T.tolist() if u != v}
    for weight in (seen.carried, seen.attention):
        assert weight.shape == seen.src.shape
        assert (weight >= 0).all()
    # What arrives at a node sums to 1, the self-loop's share included.
    arriving = torch.zeros(5).index_add(0, seen.dst, seen.attention)
    assert (arriving < 1).all()


def test_the_state_precedes_relu_and_dropout(compose: Compose) -> None:
    model: Any = build(compose, "flow=beltrami", "model.num_layers=2")
    seen = observe(model, features(), EDGES)
    last = observe(model, features(), EDGES, layer=-1)
    from robust_diffusion.operators import Graph

    graph = Graph.from_edge_index(EDGES, num_nodes=5)
    with torch.no_grad():
        logits = model(features(), EDGES)
        again, _ = model.layers[1](torch.relu(seen.z), graph)
    assert torch.equal(last.z, logits)
    assert torch.equal(again, logits)


def test_heat_weighs_edges_by_inverse_degree(compose: Compose) -> None:
    seen = observe(build(compose, "flow=heat"), features(), EDGES)
    into_first = seen.carried[seen.dst == 0]
    assert torch.allclose(into_first, torch.full((3,), 0.25))
    assert torch.equal(seen.carried, seen.attention)


def test_edges_pruned_by_a_guard_are_observed(compose: Compose) -> None:
    model = build(compose, "model=beltrami_guard", "model.threshold=0.9")
    seen = observe(model, features(), EDGES)
    assert (seen.carried == 0).any()
    free = observe(build(compose, "model=beltrami_guard", "model.threshold=-1"), features(), EDGES)
    assert (free.carried > 0).all()


def test_looking_leaves_no_trace(compose: Compose) -> None:
    model = build(compose, "flow=grand")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, second = (observe(model, features(), EDGES) for _ in range(2))
    assert torch.equal(first.carried, second.carried)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(("layer", "number"), [(-2, 1), (-1, 2), (0, 0), (2, 2), (-3, 0)])
def test_layers_are_counted_as_python_does(compose: Compose, layer: int, number: int) -> None:
    assert observe(build(compose), features(), EDGES, layer=layer).layer == number


def test_a_single_layer_is_the_last_hidden(compose: Compose) -> None:
    assert observe(build(compose, "model.num_layers=1"), features(), EDGES).layer == 0


@pytest.mark.parametrize("layer", [3, -4])
def test_a_layer_that_is_not_there_is_named(compose: Compose, layer: int) -> None:
    with pytest.raises(ConfigError, match="--layer"):
        observe(build(compose), features(), EDGES, layer=layer)


@pytest.mark.parametrize("model", ["gcn", "mlp", "gat"])
def test_a_model_without_a_flow_is_refused(compose: Compose, model: str) -> None:
    with pytest.raises(ConfigError, match="model="):
        observe(build(compose, f"model={model}"), features(), EDGES)


def test_without_diffusion_there_are_no_weights(compose: Compose) -> None:
    with pytest.raises(ConfigError, match=r"flow\.t_end=0"):
        observe(build(compose, "flow.t_end=0"), features(), EDGES)
