from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.models import GNNGuard
from robust_diffusion.operators import Graph
from tests import oracles
from tests.graphs import random_signal
from tests.models.small import build_model, dense_of, dense_stack, edges

GRADIENTS = ["exact", "straight_through", "detached"]


def dense_logits(model: nn.Module, x: Tensor) -> Tensor:
    """The dense formula; the weights are constants in it."""
    kept = dense_of(*edges())

    def apply(conv: nn.Module, x: Tensor) -> Tensor:
        nonlocal kept
        kept, weights = oracles.guard(x, kept, model.guard.threshold)
        return weights @ x @ conv.lin.weight.T + conv.bias

    return dense_stack(model, x, apply)


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("threshold", [0.1, 0.5])
def test_equals_the_dense_one(threshold: float, gradient: str) -> None:
    model = build_model(GNNGuard, threshold=threshold, gradient=gradient)
    expected = dense_logits(model, random_signal())
    torch.testing.assert_close(model(random_signal(), edges()[0]), expected)


def test_detached_takes_the_weights_as_constants() -> None:
    readout = random_signal(3, 3)

    def by_features(logits: Tensor, x: Tensor) -> Tensor:
        return torch.autograd.grad((logits * readout).sum(), x)[0]

    found = {}
    for gradient in GRADIENTS:
        model, x = build_model(GNNGuard, gradient=gradient), random_signal().requires_grad_()
        found[gradient] = by_features(model(x, edges()[0]), x)
    x = random_signal().requires_grad_()
    constant = by_features(dense_logits(build_model(GNNGuard), x), x)
    torch.testing.assert_close(found["detached"], constant)
    assert (found["exact"] - constant).abs().max() > 1e-3
    assert (found["straight_through"] - found["exact"]).abs().max() > 1e-3


def test_edges_pruned_in_one_layer_are_gone_in_the_next() -> None:
    model, seen = build_model(GNNGuard, threshold=0.2, num_layers=4), []
    for conv in model.layers:
        conv.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1]))
    model(random_signal(1), edges()[0])
    graphs: list[Graph] = seen
    assert len(graphs) == 4
    for before, after in pairwise(graphs):
        assert (after.weight[before.weight == 0] == 0).all()
    gone = [int((graph.weight == 0).sum()) for graph in graphs]
    assert gone[0] > 0
    assert gone[-1] > gone[0]


@pytest.mark.parametrize("gradient", ["exact", "straight_through"])
def test_pruned_edges_have_a_gradient_only_straight_through(gradient: str) -> None:
    edge_index, _ = edges()
    weight = torch.ones(edge_index.size(1), dtype=torch.float64, requires_grad=True)
    model = build_model(GNNGuard, gradient=gradient, threshold=0.3, num_layers=1)
    model(random_signal(), edge_index, weight).square().sum().backward()
    assert weight.grad is not None
    kept, _ = oracles.guard(
        oracles.layer_norm(random_signal(), model.norms[0]), dense_of(*edges()), 0.3
    )
    pruned = kept[edge_index[1], edge_index[0]] == 0
    assert 0 < int(pruned.sum()) < pruned.numel()
    assert ((weight.grad == 0) == (pruned if gradient == "exact" else False)).all()
