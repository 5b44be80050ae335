"""GRB's feature normalisation."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.errors import DataError

VALUES_AT_A_TIME = 2**22
"""How many features are held in float64 at once: 32 MB."""


def arctan_normalize(x: Float[Tensor, "n f"]) -> Float[Tensor, "n f"]:
    """Map features to (-1, 1): x -> (2 / pi) arctan((x - mean) / std), over the whole matrix.

    A bijection, so that an attacked feature can be carried back to its raw unit.

    Reference: section "Datasets", arXiv:2209.07754; GRB, arXiv:2111.04314.

    Args:
        x: Raw features, finite; left as they are.

    Returns:
        Normalised features, in the type of `x`; mean and standard deviation (the population's)
        are taken in float64.

    Raises:
        DataError: All features are equal, so they have no scale.
    """
    # A wide graph's features would not fit in memory twice over in float64.
    chunks = torch.split(x, max(1, VALUES_AT_A_TIME // x.size(1)))
    mean = torch.stack([chunk.sum(dtype=torch.float64) for chunk in chunks]).sum() / x.numel()
    squares = torch.stack([_squared_deviation(chunk, mean) for chunk in chunks]).sum()
    std = (squares / x.numel()).sqrt()
    # Rounding can give equal values a deviation above 0.
    if not (std > 0 and x.min() < x.max()):
        raise DataError(f"features: all equal to {mean.item():g}; nothing to normalise or learn")
    normalized = torch.empty_like(x)
    for chunk, part in zip(chunks, torch.split(normalized, chunks[0].size(0)), strict=True):
        # Word counts are mostly 0, and all zeros have one image.
        filled = chunk != 0
        part.fill_(_squash(torch.zeros_like(mean), mean, std))
        part[filled] = _squash(chunk[filled].double(), mean, std).to(x.dtype)
    return normalized


def _squared_deviation(chunk: Tensor, mean: Tensor) -> Tensor:
    values = chunk[chunk != 0].double()
    zeros = chunk.numel() - values.numel()
    return (values - mean).square_().sum() + zeros * mean.square()


def _squash(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return ((x - mean) / std).arctan_() * (2 / math.pi)
