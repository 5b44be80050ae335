"""Features in their raw unit, for models that count words instead of normalised numbers."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.data.normalize import FeatureScale

_LARGEST = 1 - 1e-6
"""Normalised values are clamped to [-LARGEST, LARGEST], since no raw value maps to 1."""


class RawFeatures(nn.Module):
    """Inverse of the normalisation of a model's inputs: mean + std tan(pi x / 2).

    Use it inside a model, such as one with a filter that counts the words that two nodes share. An
    attacker's features are normalised like all others, so they are mapped in the same way, and
    gradients pass through. The map is the identity until training on a `GraphDataModule` sets the
    scale of that graph, and stays so if features are not normalised, or to frequencies. Mean and
    deviation are buffers, so a checkpoint contains them.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import RawFeatures
        >>> from robust_diffusion.data.normalize import feature_scale
        >>> words = torch.tensor([[0.0, 2.0], [1.0, 0.0]])
        >>> scale = feature_scale(words)
        >>> raw = RawFeatures()
        >>> raw.follow(scale)
        >>> torch.allclose(raw(scale.normalize(words)), words, atol=1e-6)
        True
    """

    normalized: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("normalized", torch.tensor(data=False))
        self.register_buffer("mean", torch.tensor(0.0))
        self.register_buffer("std", torch.tensor(1.0))

    def follow(self, scale: FeatureScale | None) -> None:
        """Set the normalisation to invert; `None` for features that are raw already."""
        self.normalized.fill_(scale is not None)
        if scale is not None:
            self.mean.fill_(scale.mean)
            self.std.fill_(scale.std)

    def forward(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n f"]:
        """Return the raw features."""
        angle = x.double().clamp(-_LARGEST, _LARGEST) * (math.pi / 2)
        raw = (self.mean + self.std * angle.tan()).to(x.dtype)
        return torch.where(self.normalized, raw, x)
