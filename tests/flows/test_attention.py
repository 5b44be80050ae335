import math
from typing import Any

import pytest
import torch

from robust_diffusion.flows.attention import (
    RELEASED_WEIGHT,
    ResampledAttention,
    TrainedAttention,
)
from tests.graphs import CHANNELS, random_graph, random_signal


def build(cls: type, width: int = 6, *, spectral_norm: bool = True) -> Any:
    torch.manual_seed(0)
    return cls(CHANNELS, 2, width, spectral_norm=spectral_norm).double().eval()


def largest_singular_value(matrix: torch.Tensor) -> float:
    return torch.linalg.matrix_norm(matrix.detach(), 2).item()


def test_spectral_norm_of_both_matrices_is_one_also_after_training() -> None:
    attention = build(TrainedAttention).train()
    for layer in (attention.key, attention.query):
        assert largest_singular_value(layer.weight) == pytest.approx(1, rel=0.01)
    optimizer = torch.optim.SGD(attention.parameters(), lr=100)
    graph, z = random_graph(), random_signal()
    before = attention.key.weight.detach().clone()
    for _ in range(30):
        optimizer.zero_grad()
        attention(z, graph).square().sum().backward()
        optimizer.step()
    assert (attention.key.weight - before).abs().max() > 0.01
    for layer in (attention.key, attention.query):
        assert largest_singular_value(layer.weight) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("spectral_norm", [False, True])
def test_resampled_has_a_constant_matrix_and_nothing_to_train(spectral_norm: bool) -> None:
    attention = build(ResampledAttention, spectral_norm=spectral_norm)
    assert list(attention.parameters()) == []
    assert attention.weight.unique().numel() == 1
    expected = 1.0 if spectral_norm else RELEASED_WEIGHT * math.sqrt(6 * CHANNELS)
    assert largest_singular_value(attention.weight) == pytest.approx(expected, rel=1e-5)


def test_resample_draws_new_biases_within_the_bound_and_no_new_matrix() -> None:
    attention = build(ResampledAttention, 200)
    weight, bias = attention.weight.clone(), attention.bias
    kept = bias.clone()
    attention.resample()
    assert torch.equal(attention.weight, weight)
    assert torch.equal(bias, kept)  # the old tensor may be saved for a backward pass
    assert not torch.equal(attention.bias, bias)
    assert attention.bias.dtype == bias.dtype
    bound = 1 / math.sqrt(CHANNELS)
    assert attention.bias.abs().max() <= bound
    assert attention.bias.max() > 0.9 * bound
    assert attention.bias.min() < -0.9 * bound


def test_resample_of_trained_attention_draws_nothing() -> None:
    attention, state = build(TrainedAttention), torch.get_rng_state()
    attention.resample()
    assert torch.equal(torch.get_rng_state(), state)
