from functools import partial

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.flows import Beltrami
from robust_diffusion.models import BeltramiGuard, GraphPDE
from robust_diffusion.solver import Solver
from tests import oracles
from tests.graphs import random_signal
from tests.models.small import build_model, dense_of, edges

HEADS = 2
PARTS = {
    "flow": partial(Beltrami, heads=HEADS, attention_channels=6, gradient_floor=0.1),
    "solver": Solver("euler", num_steps=1),
}


def dense_logits(model: nn.Module, x: Tensor, threshold: float, *, reweight: bool) -> Tensor:
    """Guard, then one Euler step of the Beltrami flow, layer after layer."""
    kept = dense_of(*edges())
    for i, layer in enumerate(model.layers):
        x = oracles.layer_norm(x, layer.norm)
        kept, weights = oracles.guard(x, kept, threshold)
        used = weights if reweight else kept
        z = x @ layer.linear.weight.T + layer.linear.bias
        key, query = layer.flow.attention.key.weight, layer.flow.attention.query.weight
        attended = oracles.attention(z, used, key, query, HEADS)
        norm = oracles.gradient_norm(z, attended, "edges", 0.1)
        z = z + oracles.beltrami(z, used, attended, norm)
        x = z.relu() if i < len(model.layers) - 1 else z
    return x


@pytest.mark.parametrize("reweight", [True, False])
@pytest.mark.parametrize("threshold", [0.1, 0.5])
def test_equals_the_dense_one(threshold: float, reweight: bool) -> None:
    model = build_model(BeltramiGuard, **PARTS, threshold=threshold, reweight=reweight)
    expected = dense_logits(model, random_signal(), threshold, reweight=reweight)
    torch.testing.assert_close(model(random_signal(), edges()[0]), expected)


def test_without_a_guard_all_edges_reach_every_layer() -> None:
    model, seen = build_model(GraphPDE, **PARTS), []
    for layer in model.layers:
        layer.register_forward_hook(lambda _, inputs, output: seen.append((inputs[1], output[1])))
    model(random_signal(), edges()[0])
    assert all(after is before for before, after in seen)
