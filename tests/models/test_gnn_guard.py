import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.models import GNNGuard
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
