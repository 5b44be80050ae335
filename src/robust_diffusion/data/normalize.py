"""GRB's feature normalisation, and the way back."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.checks import check_number
from robust_diffusion.errors import DataError

VALUES_AT_A_TIME = 2**22
"""Number of features in float64 at once: 32 MB."""


@dataclass(frozen=True)
class FeatureScale:
    """The bijection x -> (2 / pi) arctan((x - mean) / std) onto (-1, 1), and its inverse.

    Both ways are computed in float64 and returned in the type of the argument. A value x that lies
    t standard deviations from the mean comes back within eps ((1 + t^2) std + |x|), where eps is
    1.2e-7 in float32 and 2.2e-16 in float64: the images of far values lie close together. Beyond
    t of about 1 / eps the image is 1, from where there is no way back.

    Reference: section "Datasets", arXiv:2209.07754; GRB, arXiv:2111.04314.

    Args:
        mean: Of the raw features, in their unit; finite.
        std: Their standard deviation, above 0.

    Raises:
        ConfigError: A number out of range.
    """

    mean: float
    std: float

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_number("feature_scale.mean", self.mean)
        check_number("feature_scale.std", self.std, above=0)

    def normalize(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n f"]:
        """Finite raw features on (-1, 1)."""
        mean, std = self._tensors(x)
        normalized = torch.empty_like(x)
        for chunk, part in zip(_chunks(x), _chunks(normalized), strict=True):
            # Word counts are mostly 0, and all zeros have one image.
            filled = chunk != 0
            part.fill_(_squash(torch.zeros_like(mean), mean, std))
            part[filled] = _squash(chunk[filled].double(), mean, std).to(x.dtype)
        return normalized

    def denormalize(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n f"]:
        """Features in (-1, 1), such as an attack's, in their raw unit: mean + std tan(pi x / 2).

        Raises:
            DataError: A value that no raw feature is mapped to: -1, 1, beyond, or NaN.
        """
        mean, std = self._tensors(x)
        raw = torch.empty_like(x)
        first_row = 0
        for chunk, part in zip(_chunks(x), _chunks(raw), strict=True):
            outside = ~(chunk.abs() < 1)
            if outside.any():
                row, column = outside.nonzero()[0].tolist()
                raise DataError(
                    f"features: {chunk[row, column].item()} at node {first_row + row}, column "
                    f"{column} is not inside (-1, 1), the image of no raw value; keep "
                    "feature_limits inside"
                )
            part.copy_((chunk.double() * (math.pi / 2)).tan_().mul_(std).add_(mean))
            first_row += chunk.size(0)
        return raw

    def _tensors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        # On the device of x, where a number would be divided by in another way than a tensor.
        mean, std = x.new_tensor([self.mean, self.std], dtype=torch.float64)
        return mean, std


def feature_scale(x: Float[Tensor, "n f"]) -> FeatureScale:
    """Mean and population standard deviation of a graph's raw features, in float64.

    Raises:
        DataError: All features are equal, so they have no scale.
    """
    # A wide graph's features would not fit in memory twice over in float64.
    chunks = _chunks(x)
    mean = torch.stack([chunk.sum(dtype=torch.float64) for chunk in chunks]).sum() / x.numel()
    squares = torch.stack([_squared_deviation(chunk, mean) for chunk in chunks]).sum()
    std = (squares / x.numel()).sqrt()
    # Rounding can give equal values a deviation above 0.
    if not (std > 0 and x.min() < x.max()):
        raise DataError(f"features: all equal to {mean.item():g}; nothing to normalise or learn")
    return FeatureScale(mean.item(), std.item())


def arctan_normalize(x: Float[Tensor, "n f"]) -> Float[Tensor, "n f"]:
    """Map features to (-1, 1): x -> (2 / pi) arctan((x - mean) / std), over the whole matrix.

    `feature_scale(x).denormalize` carries an attacked feature back to its raw unit.

    Reference: section "Datasets", arXiv:2209.07754; GRB, arXiv:2111.04314.

    Args:
        x: Raw features, finite; left as they are.

    Raises:
        DataError: All features are equal, so they have no scale.
    """
    return feature_scale(x).normalize(x)


def _chunks(x: Tensor) -> tuple[Tensor, ...]:
    return torch.split(x, max(1, VALUES_AT_A_TIME // max(1, x.size(1))))


def _squared_deviation(chunk: Tensor, mean: Tensor) -> Tensor:
    values = chunk[chunk != 0].double()
    zeros = chunk.numel() - values.numel()
    return (values - mean).square_().sum() + zeros * mean.square()


def _squash(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return ((x - mean) / std).arctan_() * (2 / math.pi)
