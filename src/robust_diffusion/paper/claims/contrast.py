"""A weighted sum of group means: its confidence interval, its tests, its effect size."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Moments:
    """Mean, sample variance and number of a group's values, as a t-test needs them."""

    mean: float
    variance: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Moments":
        """Moments of at least two values."""
        array = np.fromiter(values, dtype=float)
        if array.size < 2:
            raise ValueError("a group of fewer than two values has no variance")
        mean, variance = float(array.mean()), float(array.var(ddof=1))
        # Equal numbers can differ from their mean by a rounding error.
        return cls(mean, 0.0 if np.ptp(array) == 0 else variance, array.size)


@dataclass(frozen=True)
class Estimate:
    """Estimate of a weighted sum of means.

    Args:
        effect: The sum.
        low: Lower end of its confidence interval.
        high: Upper end.
        error: Standard error.
        freedom: Degrees of freedom; infinite where nothing varies.
        hedges_g: Effect over the pooled standard deviation, corrected for few values; `None`
            where nothing varies.
        count: Number of values in the smallest group.
    """

    effect: float
    low: float
    high: float
    error: float
    freedom: float
    hedges_g: float | None
    count: int

    def p_above(self, bound: float) -> float:
        """One-sided p-value of the effect being above a bound."""
        distance = self.effect - bound
        if self.error == 0:
            # Nothing varies: the effect is certain, and a tie proves nothing.
            return 0.0 if distance > 0 else 1.0
        return float(student.sf(distance / self.error, self.freedom))

    def p_below(self, bound: float) -> float:
        """One-sided p-value of the effect being below a bound."""
        distance = self.effect - bound
        if self.error == 0:
            return 0.0 if distance < 0 else 1.0
        return float(student.cdf(distance / self.error, self.freedom))

    def p_within(self, margin: float) -> float:
        """P-value of the effect being between -margin and margin: the larger of two (TOST).

        Reference: Schuirmann 1987.
        """
        return max(self.p_above(-margin), self.p_below(margin))

    def p_nonzero(self) -> float:
        """Two-sided p-value of there being an effect."""
        return min(1.0, 2 * min(self.p_above(0), self.p_below(0)))


def welch(groups: Sequence[tuple[float, Moments]], *, confidence: float = CONFIDENCE) -> Estimate:
    """A weighted sum of the means of independent groups, their variances not assumed equal.

    With weights 1 and -1 this is Welch's t-test; the degrees of freedom are Satterthwaite's.

    Reference: Welch 1947; Satterthwaite 1946; Hedges 1981 (effect size).

    Args:
        groups: Weight and moments of each group.
        confidence: Of the interval, in 0..1.
    """
    weights = np.array([weight for weight, _ in groups])
    means = np.array([moments.mean for _, moments in groups])
    variances = np.array([moments.variance for _, moments in groups])
    counts = np.array([moments.count for _, moments in groups], dtype=float)
    parts = weights**2 * variances / counts
    error = math.sqrt(parts.sum())
    freedom = parts.sum() ** 2 / (parts**2 / (counts - 1)).sum() if error > 0 else math.inf
    effect = float((weights * means).sum())
    reach = error * float(student.ppf((1 + confidence) / 2, freedom)) if error > 0 else 0.0
    total = float((counts - 1).sum())
    pooled = math.sqrt(((counts - 1) * variances).sum() / total)
    return Estimate(
        effect=effect,
        low=effect - reach,
        high=effect + reach,
        error=error,
        freedom=float(freedom),
        hedges_g=effect / pooled * (1 - 3 / (4 * total - 1)) if pooled > 0 else None,
        count=int(counts.min()),
    )


def paired(
    groups: Sequence[tuple[float, Sequence[float]]], *, confidence: float = CONFIDENCE
) -> Estimate:
    """The same where the i-th values of all groups belong together, as those of one seed do.

    Args:
        groups: Weight and values of each group, equally many and at least two.
        confidence: Of the interval, in 0..1.

    Raises:
        ValueError: Groups of different sizes, or of fewer than two values.
    """
    weights = np.array([weight for weight, _ in groups])
    values = np.array([list(values) for _, values in groups], dtype=float)
    # By a matrix product the last bit would depend on the processor, by which BLAS takes its path.
    sums = (weights[:, None] * values).sum(axis=0)
    return welch([(1.0, Moments.of(sums))], confidence=confidence)
