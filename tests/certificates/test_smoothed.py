from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from robust_diffusion.certificates import BiSmoothing, NoisyModel, SmoothedModel, SparseSmoothing
from robust_diffusion.certificates.noise import Noise
from robust_diffusion.certificates.sampling import noisy_logits
from robust_diffusion.models import GCN
from tests.attacks.contract import graph, model

SCHEMES = [SparseSmoothing(p_plus=0.01), BiSmoothing(p_e=0.3, p_n=0.3)]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_the_smoothed_class_is_that_of_most_draws(scheme: Any) -> None:
    x, edges = graph().x, graph().edge_index
    smoothed = SmoothedModel(model(), scheme, draws=9, per_pass=4).eval()
    with torch.no_grad():
        logits = noisy_logits(model(), x, edges, scheme, Noise(0, "model"), range(9))
        votes = torch.nn.functional.one_hot(logits.argmax(2), 7).sum(0)
        found = smoothed(x, edges)
        assert torch.equal(smoothed(x, edges.flip(0)).argmax(1), found.argmax(1))
    torch.testing.assert_close(found.exp() * 16, votes + 1.0)
    assert torch.equal(found.argmax(1), votes.argmax(1))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_the_gradient_is_that_of_the_mean_probabilities(scheme: Any) -> None:
    x, edges = graph().x.clone().requires_grad_(), graph().edge_index
    weight = torch.ones(edges.size(1), requires_grad=True)
    smoothed = SmoothedModel(model(), scheme, draws=5, per_pass=2).eval()
    mean = torch.stack(
        [
            noisy_logits(model(), x, edges, scheme, smoothed.noise, [i], weight)[0].softmax(1)
            for i in range(5)
        ]
    ).mean(0)

    def gradients(of: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(of[graph().index_test, 2].sum(), (x, weight))

    for found, expected in zip(
        gradients(smoothed(x, edges, weight)), gradients(mean.log()), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
        assert expected.abs().max() > 0


def test_training_meets_a_noise_of_its_own_in_each_pass(
    make_datamodule: Callable[..., Any], make_fit: Callable[..., Any], tmp_path: Any
) -> None:
    torch.manual_seed(0)
    noisy, given = (
        NoisyModel(GCN(16, 8, 7, dropout=0.0), SCHEMES[1]),
        (graph().x, graph().edge_index),
    )
    noisy.eval()
    assert torch.equal(noisy(*given), noisy(*given))
    noisy.train()
    torch.manual_seed(0)
    first, second = noisy(*given), noisy(*given)
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(noisy(*given), first)
    before = [parameter.clone() for parameter in noisy.parameters()]
    make_fit(max_epochs=2)(noisy, make_datamodule(), directory=tmp_path)
    assert any((a != b).any() for a, b in zip(before, noisy.parameters(), strict=True))
