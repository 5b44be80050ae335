"""Propagation in C++ over a graph with injected nodes, against the models in PyTorch."""

import pytest
import torch
from torch import nn

from robust_diffusion.errors import RobustDiffusionError
from robust_diffusion.models import APPNP, GPRGNN, RUNG, ElasticGNN
from robust_diffusion.models.propagating import PropagatingMLP
from robust_diffusion.operators import set_backend
from tests.graphs import CHANNELS, NODES, random_edges
from tests.models.small import build_model

MODELS = {
    "appnp": (APPNP, {}),
    "appnp, grb": (APPNP, {"variant": "grb", "num_iterations": 5, "teleport": 0.2}),
    "gpr_gnn": (GPRGNN, {}),
    "elastic_gnn": (ElasticGNN, {"lambda1": 0.1}),  # small, so that duals reach the limit
}


def built(cls: type[nn.Module], **options: object) -> PropagatingMLP:
    model = build_model(cls, **options)
    assert isinstance(model, PropagatingMLP)
    return model


@pytest.fixture(autouse=True)
def compiled() -> None:
    try:
        set_backend("compiled")
    except RobustDiffusionError:
        pytest.skip("no C++ compiler")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("num_links", [0, 2])
def test_logits_are_those_of_the_model(name: str, num_links: int) -> None:
    cls, options = MODELS[name]
    model, generator = built(cls, **options), torch.Generator().manual_seed(0)
    edge_index, _ = random_edges(0, symmetric=True)
    x = torch.randn(NODES + 3, CHANNELS, generator=generator, dtype=torch.float64)
    targets, links = torch.tensor([1, 4, 2]), torch.tensor([[0, 1], [1, 2]])[:, :num_links]
    chosen = torch.tensor([[True, True, False], [False, True, True], [False, False, True]])
    fast = model.propagator(x[:NODES], edge_index, targets)
    assert fast is not None
    logits = fast(fast.predictions(x[NODES:]), chosen, links)

    node, end = chosen.nonzero().T
    new = torch.cat([torch.stack([node + NODES, targets[end]]), links + NODES], 1)
    with torch.no_grad():
        expected = model(x, torch.cat([edge_index, new, new.flip(0)], 1))[targets]
    torch.testing.assert_close(logits, expected)


def test_only_what_is_compiled_has_a_propagator() -> None:
    edge_index, _ = random_edges(0, symmetric=True)
    x, targets = torch.rand(NODES, CHANNELS, dtype=torch.float64), torch.tensor([0])
    assert built(RUNG).propagator(x, edge_index, targets) is None
    assert built(ElasticGNN, penalty="l1").propagator(x, edge_index, targets) is None
    set_backend("torch")
    assert built(GPRGNN).propagator(x, edge_index, targets) is None
