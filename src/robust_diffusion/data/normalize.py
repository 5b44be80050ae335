"""GRB's feature normalisation."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.checks import Positive, validated
from robust_diffusion.errors import DataError

_VALUES_AT_A_TIME = 2**22
"""Number of features in float64 at a time (32 MB)."""


@validated("feature_scale")
@dataclass(frozen=True)
class FeatureScale:
    """The map x -> (2 / pi) arctan((x - mean) / std) onto (-1, 1), computed in float64.

    Reference: section "Datasets", arXiv:2209.07754; GRB, arXiv:2111.04314.

    Args:
        mean: Mean of the raw features, in their unit; finite.
        std: Standard deviation of the raw features, above 0.

    Raises:
        ConfigError: A number is out of range.
    """

    mean: float
    std: Positive

    def normalize(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n f"]:
        """Map finite raw features to (-1, 1)."""
        # Tensors on the device of x, since dividing by a Python number rounds differently.
        mean, std = x.new_tensor([self.mean, self.std], dtype=torch.float64)
        normalized = torch.empty_like(x)
        for chunk, part in zip(_chunks(x), _chunks(normalized), strict=True):
            # Word counts are mostly 0, and all zeros have the same image.
            filled = chunk != 0
            part.fill_(_squash(torch.zeros_like(mean), mean, std))
            part[filled] = _squash(chunk[filled].double(), mean, std).to(x.dtype)
        return normalized


def feature_scale(x: Float[Tensor, "n f"]) -> FeatureScale:
    """Compute mean and population standard deviation of raw features, in float64."""
    # In chunks, since a float64 copy of many features may not fit in memory.
    chunks = _chunks(x)
    mean = torch.stack([chunk.sum(dtype=torch.float64) for chunk in chunks]).sum() / x.numel()
    squares = torch.stack([_squared_deviation(chunk, mean) for chunk in chunks]).sum()
    std = (squares / x.numel()).sqrt()
    # Rounding can give equal values a deviation above 0.
    if not (std > 0 and x.min() < x.max()):
        raise DataError(f"features: all equal to {mean.item():g}; nothing to normalise or learn")
    return FeatureScale(mean.item(), std.item())


def row_frequencies(x: Float[Tensor, "n f"], name: str) -> Float[Tensor, "n f"]:
    """Divide each row of word counts by its sum; a row of zeros stays."""
    if x.min() < 0:
        raise DataError(
            f"dataset={name}: features: expected at least 0 for data.normalize=frequencies, got "
            f"{x.min().item():g}; use arctan"
        )
    x = x.double()
    return (x / x.sum(1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)).float()


def _chunks(x: Tensor) -> tuple[Tensor, ...]:
    return torch.split(x, max(1, _VALUES_AT_A_TIME // max(1, x.size(1))))


def _squared_deviation(chunk: Tensor, mean: Tensor) -> Tensor:
    values = chunk[chunk != 0].double()
    zeros = chunk.numel() - values.numel()
    return (values - mean).square_().sum() + zeros * mean.square()


def _squash(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return ((x - mean) / std).arctan_() * (2 / math.pi)
