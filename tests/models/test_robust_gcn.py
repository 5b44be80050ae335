import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.models import RobustGCN
from tests import oracles
from tests.graphs import random_signal
from tests.models.small import build_model, dense_of, edges


def dense_moments(model: nn.Module, x: Tensor, dense: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances of the logits, layer by layer from the paper."""
    elu = nn.functional.elu
    first = x @ model.mean[0].weight.T + model.mean[0].bias
    mean, variance = oracles.gaussian_convolution(elu(first), first.relu(), dense)
    for to_mean, to_variance in zip(model.mean[1:], model.variance, strict=True):
        mean = elu(mean) @ to_mean.weight.T + to_mean.bias
        variance = elu(variance) @ to_variance.weight.T + to_variance.bias
        mean, variance = oracles.gaussian_convolution(elu(mean), variance.relu(), dense)
    return mean, variance


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_means_equal_the_dense_ones(num_layers: int, weighted: bool) -> None:
    model, given = build_model(RobustGCN, num_layers=num_layers), edges(weighted=weighted)
    expected, _ = dense_moments(model, random_signal(), dense_of(*given))
    torch.testing.assert_close(model(random_signal(), *given), expected)


def test_logits_are_drawn_by_the_dense_variances() -> None:
    model, given = build_model(RobustGCN, sample_at_test=True), edges()
    mean, variance = dense_moments(model, random_signal(), dense_of(*given))
    assert (variance > 0.01).any()
    torch.manual_seed(3)
    logits = model(random_signal(), *given)
    torch.manual_seed(3)
    expected = mean + torch.randn_like(mean) * variance.sqrt()
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-3)


def test_only_training_draws_unless_the_switch_says_otherwise() -> None:
    given = (random_signal(), edges()[0])
    plain = build_model(RobustGCN, dropout=0.0)
    drawing = build_model(RobustGCN, dropout=0.0, sample_at_test=True)
    state = torch.get_rng_state()
    assert torch.equal(plain(*given), plain(*given))
    assert torch.equal(torch.get_rng_state(), state)
    for model in (drawing, plain.train()):
        first, second = model(*given), model(*given)
        assert (first - second).abs().max() > 1e-3
        torch.manual_seed(3)
        again = model(*given)
        torch.manual_seed(3)
        assert torch.equal(model(*given), again)


def test_gradient_is_finite_where_the_variance_is_zero() -> None:
    model, given = build_model(RobustGCN).train(), edges()
    with torch.no_grad():
        model.variance[-1].bias -= 1e3
    model(random_signal(), *given).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
