import math

import pytest
import torch

from robust_diffusion.errors import ConfigError
from robust_diffusion.flows.attention import (
    RELEASED_WEIGHT,
    ResampledAttention,
    TrainedAttention,
    build_attention,
)
from tests.graphs import CHANNELS, random_graph, random_signal, without_type_checks


def build(
    kind: str = "trained",
    *,
    spectral_norm: bool = True,
    heads: int = 2,
    attention_channels: int = 6,
) -> TrainedAttention | ResampledAttention:
    torch.manual_seed(0)
    attention = build_attention(
        kind,
        CHANNELS,
        heads=heads,
        attention_channels=attention_channels,
        spectral_norm=spectral_norm,
    )
    return attention.double().eval()


def largest_singular_value(matrix: torch.Tensor) -> float:
    return torch.linalg.matrix_norm(matrix.detach(), 2).item()


def test_spectral_norm_of_both_matrices_is_one_also_after_training() -> None:
    attention = build().train()
    assert isinstance(attention, TrainedAttention)
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


def test_without_spectral_norm_the_matrices_are_free() -> None:
    attention = build(spectral_norm=False)
    assert isinstance(attention, TrainedAttention)
    assert set(dict(attention.named_parameters())) == {"key.weight", "query.weight"}
    with torch.no_grad():
        attention.key.weight.mul_(50)
    assert largest_singular_value(attention.key.weight) > 5


@pytest.mark.parametrize("spectral_norm", [False, True])
def test_resampled_has_a_constant_matrix_and_nothing_to_train(spectral_norm: bool) -> None:
    attention = build("resampled", spectral_norm=spectral_norm)
    assert list(attention.parameters()) == []
    assert attention.weight.unique().numel() == 1
    expected = 1.0 if spectral_norm else RELEASED_WEIGHT * math.sqrt(6 * CHANNELS)
    assert largest_singular_value(attention.weight) == pytest.approx(expected, rel=1e-5)


def test_resample_draws_new_biases_within_the_bound_and_no_new_matrix() -> None:
    attention = build("resampled", attention_channels=200)
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
    attention = build()
    before = {name: value.clone() for name, value in attention.state_dict().items()}
    state = torch.get_rng_state()
    attention.resample()
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in attention.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "frozen"}, r"flow\.attention=frozen: .*resampled, trained"),
        ({"heads": 0}, r"flow\.heads=0"),
        ({"heads": 2.0}, r"flow\.heads=2\.0"),
        ({"attention_channels": 0}, r"flow\.attention_channels=0"),
        ({"attention_channels": 7}, r"flow\.attention_channels=7: .*multiple of flow\.heads=2"),
    ],
)
def test_bad_option_names_its_key(options: dict[str, object], message: str) -> None:
    arguments = {"attention": "trained", "channels": CHANNELS, "heads": 2, **options}
    with without_type_checks(), pytest.raises(ConfigError, match=message):
        build_attention(**arguments)
