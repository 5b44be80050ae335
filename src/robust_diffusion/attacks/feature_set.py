"""Sets of features that a budget allows for injected nodes, and the projection onto each set."""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from robust_diffusion.attacks.budget import Budget


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """Any features between two limits.

    Steps move a relaxed variable, which `clip` keeps within the limits. The model sees
    `exact(variable)`, so every accuracy that an attack reads belongs to features within the budget.
    """

    low: Any  # smallest value, or a tensor of the smallest value of each feature
    high: Any  # largest value, or a tensor of the largest value of each feature
    unit: float = field(default=1.0, kw_only=True)  # of step sizes; see `Budget.unit`

    def clip(self, x: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Clamp a variable to the limits."""
        return x.clamp(self.low, self.high)

    def nearest(self, x: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Return the features of the set that are nearest to features within the limits."""
        return x

    def exact(self, x: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Return `nearest`, with a gradient along which the variable can ascend."""
        return x

    def extreme(self, direction: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Return the features of the set that are farthest along a direction."""
        return torch.where(
            direction > 0, direction.new_tensor(self.high), direction.new_tensor(self.low)
        )

    def odds(self, x: Float[Tensor, "k f"]) -> Float[Tensor, "k f"] | float:
        """Return how likely each feature is to mutate, at most 1."""
        return 1.0


@dataclass(frozen=True, eq=False)
class _Words(FeatureSet):
    """A bag of words with at most `max_words` words per node."""

    max_words: int | None

    def exact(self, x: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Return `nearest`; the gradient is that of `above_price`."""
        return _Exact.apply(x, self)  # type: ignore[no-any-return, no-untyped-call]

    def above_price(
        self, slope: Float[Tensor, "k f"], features: Float[Tensor, "k f"]
    ) -> Float[Tensor, "k f"]:
        """Return the slope of each word minus the price of a place in the node.

        The price lies halfway between the last word that fits and the first that does not. Step
        rules mostly follow signs: without it, every word that does some harm would rise, and the
        limit would choose among them regardless of how much harm each does.
        """
        f = slope.size(1)
        if self.max_words is None or self.max_words >= f:
            return slope
        ordered = slope.topk(self.max_words + 1, 1).values
        return slope - ordered[:, -2:].mean(1, keepdim=True).clamp_min(0)

    def largest(self, x: Float[Tensor, "k f"]) -> Bool[Tensor, "k f"]:
        """Return where the `max_words` largest entries of each row are; the first of equal ones."""
        if self.max_words is None or self.max_words >= x.size(1):
            return torch.ones_like(x, dtype=torch.bool)
        order = x.argsort(dim=1, descending=True, stable=True)[:, : self.max_words]
        return torch.zeros_like(x, dtype=torch.bool).scatter_(1, order, value=True)

    def odds(self, x: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Return odds at which words are added as often as removed."""
        present = x > self.low
        count = present.sum(1, keepdim=True)
        return torch.where(present, 1.0, count / (x.size(1) - count).clamp_min(1)).to(x)


class Binary(_Words):
    """Words that are either absent (the lower limit) or present (the upper limit)."""

    def nearest(self, x: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Keep the largest entries, as far as they are nearer to present than to absent."""
        return self.extreme(x - (self.low + self.high) / 2)

    def extreme(self, direction: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Return the words that lie farthest along a direction."""
        return super().extreme(torch.where(self.largest(direction), direction, 0))


class Frequencies(_Words):
    """Word frequencies: features of at least 0 that sum to one in each node."""

    def nearest(self, x: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Project the largest entries of each row onto the simplex.

        Reference: Kyrillidis et al. 2013, arXiv:1206.1529.
        """
        x = x.masked_fill(~self.largest(x), -torch.inf)
        ordered = x.sort(1, descending=True).values
        excess = ordered.cumsum(1) - 1
        counts = torch.arange(1, x.size(1) + 1, device=x.device)
        # At least 1: a row with a NaN has a count of 0, and must stay NaN for the gradient check.
        count = (ordered * counts > excess).sum(1, keepdim=True).clamp_min(1)
        return (x - excess.gather(1, count - 1) / count).clamp_min(0)

    def extreme(self, direction: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Return the one word that lies farthest along a direction."""
        best = direction.argmax(1, keepdim=True)
        return torch.zeros_like(direction).scatter_(1, best, 1.0)

    def above_price(
        self, slope: Float[Tensor, "k f"], features: Float[Tensor, "k f"]
    ) -> Float[Tensor, "k f"]:
        """Return the slope of each word minus the mean over the words that the node holds."""
        return slope - (slope * features).sum(1, keepdim=True)


class _Exact(torch.autograd.Function):
    """The nearest features of a set, straight through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, words: _Words) -> Tensor:
        ctx.words = words
        features = words.nearest(x)
        ctx.save_for_backward(features)
        return features

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        words: _Words = ctx.words
        return words.above_price(slope, *ctx.saved_tensors), None


def feature_set(budget: Budget) -> FeatureSet:
    """Return the features that a resolved budget allows for injected nodes."""
    low, high = budget.limits
    if budget.features is None:
        return FeatureSet(low, high, unit=budget.unit)
    kind = Binary if budget.features == "binary" else Frequencies
    return kind(low, high, budget.max_words, unit=budget.unit)
