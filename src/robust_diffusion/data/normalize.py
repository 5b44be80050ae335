"""GRB's feature normalisation."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.errors import DataError


def arctan_normalize(x: Float[Tensor, "n f"]) -> Float[Tensor, "n f"]:
    """Map features to (-1, 1): x -> (2 / pi) arctan((x - mean) / std), over the whole matrix.

    A bijection, so that an attacked feature can be carried back to its raw unit.

    Reference: section "Datasets", arXiv:2209.07754; GRB, arXiv:2111.04314.

    Args:
        x: Raw features, finite.

    Returns:
        Normalised features, in the type of `x`; mean and standard deviation (the population's)
        are taken in float64.

    Raises:
        DataError: All features are equal, so they have no scale.
    """
    exact = x.to(torch.float64, copy=True)  # a copy that can be worked on in place
    mean, std = exact.mean(), exact.std(correction=0)
    if not std > 0:
        raise DataError(f"features: all equal to {mean.item():g}; nothing to normalise or learn")
    return (exact.sub_(mean).div_(std).arctan_().mul_(2 / math.pi)).to(x.dtype)
