"""Spectral normalisation of several matrices at once against torch's parametrisation."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from robust_diffusion.flows.attention import RELEASED_WEIGHT, ResampledAttention, normalized_weights
from tests.backends import BACKENDS, backend
from tests.graphs import CHANNELS

SHAPES = [(6, 5), (5, 6), (64, 70), (1, 4), (4, 1), (1, 1)]
TOLERANCE = {torch.float64: 1e-13, torch.float32: 5e-6}


def layers(rows: int, columns: int, dtype: torch.dtype, count: int = 2) -> nn.ModuleList:
    torch.manual_seed(0)
    linears = nn.ModuleList(nn.Linear(columns, rows, bias=False) for _ in range(count))
    for linear in linears:
        parametrizations.spectral_norm(linear)
    return linears.to(dtype)


def at_once(linears: nn.ModuleList) -> Tensor:
    return normalized_weights(list(linears))


def by_torch(linears: nn.ModuleList) -> Tensor:
    return torch.stack([linear.weight for linear in linears])


def vectors(linears: nn.ModuleList) -> list[Tensor]:
    return [buffer.clone() for buffer in linears.buffers()]


def with_gradients(linears: nn.ModuleList, weights: list[Tensor]) -> list[Tensor]:
    """The weights of several calls, and the gradients of a sum over them all."""
    probe = torch.cos(torch.arange(weights[0].numel())).view_as(weights[0])
    loss = sum(((i + 1) * weight * probe).sum() for i, weight in enumerate(weights))
    return [*weights, *torch.autograd.grad(loss, list(linears.parameters()))]


def everything(linears: nn.ModuleList, weights: list[Tensor]) -> list[Tensor]:
    return [*with_gradients(linears, weights), *vectors(linears)]


def assert_equal(actual: list[Tensor], expected: list[Tensor]) -> None:
    for one, two in zip(actual, expected, strict=True):
        assert one.dtype == two.dtype
        tolerance = TOLERANCE[one.dtype] * two.abs().max().clamp_min(1.0)
        assert (one - two).abs().max() <= tolerance


@pytest.mark.parametrize("name", [*BACKENDS, "triton"])
@pytest.mark.parametrize(
    ("shape", "training", "dtype"),
    [(shape, i % 3 > 0, list(TOLERANCE)[i % 2]) for i, shape in enumerate(SHAPES)],
    ids=str,
)
def test_spectral_norm_of_torch(
    shape: tuple[int, int], training: bool, name: str, dtype: torch.dtype
) -> None:
    count = shape[0] % 3 + 1  # of matrices
    ours, theirs = (layers(*shape, dtype, count).train(training) for _ in range(2))
    with backend(name):
        # All calls before any derivative: each must remember its own singular vectors.
        actual = [at_once(ours) for _ in range(3)]
        expected = [by_torch(theirs) for _ in range(3)]
        assert_equal(everything(ours, actual), everything(theirs, expected))
        with torch.no_grad():  # as an optimiser does
            for parameter in (*ours.parameters(), *theirs.parameters()):
                parameter.mul_(0.5).add_(0.1)
        assert_equal(everything(ours, [at_once(ours)]), everything(theirs, [by_torch(theirs)]))


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("before", ["transposed in memory", "in inference mode"])
def test_spectral_norm_history(before: str, name: str) -> None:
    ours, theirs = (layers(6, 5, torch.float64) for _ in range(2))
    with backend(name):
        if before == "in inference mode":
            by_torch(theirs)
            with torch.inference_mode():
                at_once(ours)
        else:
            for linear in ours:
                parameter = linear.parametrizations.weight.original
                parameter.data = parameter.data.T.contiguous().T
        actual = everything(ours, [at_once(ours)])
    assert_equal(actual, everything(theirs, [by_torch(theirs)]))


def build(cls: type, width: int = 6, *, lipschitz: bool = True) -> Any:
    torch.manual_seed(0)
    return cls(CHANNELS, 2, width, lipschitz=lipschitz).double().eval()


@pytest.mark.parametrize("lipschitz", [False, True])
def test_resampled_matrix(lipschitz: bool) -> None:
    attention = build(ResampledAttention, lipschitz=lipschitz)
    assert list(attention.parameters()) == []
    assert attention.weight.unique().numel() == 1
    expected = 1.0 if lipschitz else RELEASED_WEIGHT * math.sqrt(6 * CHANNELS)
    largest = torch.linalg.matrix_norm(attention.weight, 2).item()
    assert largest == pytest.approx(expected, rel=1e-5)


def test_resampled_biases() -> None:
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
