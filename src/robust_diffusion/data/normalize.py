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
    squares = torch.stack([(chunk.double() - mean).square_().sum() for chunk in chunks]).sum()
    std = (squares / x.numel()).sqrt()
    # Rounding can give equal values a deviation above 0.
    if not (std > 0 and x.min() < x.max()):
        raise DataError(f"features: all equal to {mean.item():g}; nothing to normalise or learn")
    normalized = torch.empty_like(x)
    for chunk, part in zip(chunks, torch.split(normalized, chunks[0].size(0)), strict=True):
        part.copy_((chunk.double() - mean).div_(std).arctan_().mul_(2 / math.pi))
    return normalized
