"""Means, effects with confidence intervals and tests, and their formatting as text."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

MINUS = "\N{MINUS SIGN}"

LEVEL = 0.95
"""Level of every confidence interval."""

RULE = (
    "Of two means, p and the 95 % interval are two-sided and of the differences seed by seed "
    "(Student), the same wherever these means are compared. Significant is what is so by Holm's "
    "method over all comparisons of one claim: a sentence of the paper, a setting beside the one "
    "that it departs from, or a model beside another."
)
"""The rule for all tests and corrections, in words."""


def mean_and_std(values: Iterable[float | None]) -> tuple[float, float]:
    """Return mean and sample standard deviation of the present values, NaN if undefined.

    They are added in ascending order, so that rounding does not depend on the order of records.
    """
    numbers = np.sort(np.array([*values], dtype=float))
    numbers = numbers[~np.isnan(numbers)]
    mean = float(numbers.mean()) if numbers.size else math.nan
    return mean, float(numbers.std(ddof=1)) if numbers.size > 1 else math.nan


def spread(mean: float | None, std: float | None, decimals: int) -> str:
    """Format a mean with its deviation, if there is one; a dash without a mean."""
    if mean is None or math.isnan(mean):
        return "-"
    return f"{mean:.{decimals}f}" + (
        "" if std is None or math.isnan(std) else f" ± {std:.{decimals}f}"
    )


def places_for(value: float, *, digits: int) -> int:
    """Return the decimals that give a number `digits` digits in total."""
    return max(0, digits - 1 - math.floor(math.log10(value))) if value > 0 else 0


def signed(value: float, decimals: int) -> str:
    """Format a number with its sign, unless it rounds to 0; a dash for NaN."""
    if math.isnan(value):
        return "-"
    rounded = round(value, decimals)
    return f"{rounded:+.{decimals}f}".replace("-", MINUS) if rounded else f"{0:.{decimals}f}"


def p_value(p: float) -> str:
    """Format a p-value to two digits."""
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


@dataclass(frozen=True)
class Estimate:
    """Estimate of a mean, or of a weighted sum of means."""

    effect: float
    error: float  # standard error; 0 without variation
    freedom: float  # degrees of freedom
    seeds: int  # smallest number of seeds behind a mean
    interval: tuple[float, float]  # at `LEVEL`; of length 0 without variation

    @classmethod
    def _of(cls, effect: float, error: float, freedom: float, seeds: int) -> "Estimate":
        # Late; by what `scipy.stats.t` calls, whose import takes most of a table's 1.5 s.
        from scipy import special

        reach = error and error * float(special.stdtrit(freedom, (1 + LEVEL) / 2))
        return cls(effect, error, freedom, seeds, (effect - reach, effect + reach))

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Estimate the mean of values, one per seed, by Student's t."""
        mean, std = mean_and_std(values)
        # Equal numbers can differ from their mean by a rounding error.
        error = std / math.sqrt(len(values)) if min(values) < max(values) else 0.0
        return cls._of(mean, error, len(values) - 1, len(values))

    @classmethod
    def sum(cls, means: Iterable[tuple[float, float, float, int]]) -> "Estimate":
        """Estimate a weighted sum of means of independent samples, by Welch's t.

        Reference: Welch 1947, Biometrika 34; Satterthwaite 1946 (degrees of freedom).
        """
        weights, values, stds, counts = (np.array(column) for column in zip(*means, strict=True))
        parts = (weights * stds) ** 2 / counts
        total = float(parts.sum())
        freedom = total**2 / float((parts**2 / (counts - 1)).sum()) if total > 0 else 0.0
        effect = float((weights * values).sum())
        return cls._of(effect, math.sqrt(total), freedom, int(counts.min()))

    def p(self, bound: float = 0.0) -> float | None:
        """Return the two-sided p-value of a difference from a bound; `None` if nothing varies."""
        if self.error == 0:
            return None
        from scipy import special

        return 2 * float(special.stdtr(self.freedom, -abs(self.effect - bound) / self.error))


def starred(p_values: Sequence[float | None]) -> list[bool]:
    """Return which comparisons of one claim are significant by Holm's method."""
    tested = [math.nan if p is None else p for p in p_values]
    return [p <= 1 - LEVEL for p in holm(tested)]


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number by Holm's method; each is at most 1.

    The i-th smallest of m is multiplied by m - i + 1, none becomes smaller than one before it.
    NaN stands for a missing test: it stays NaN and does not count among the m.

    Reference: Holm 1979, Scandinavian Journal of Statistics 6.
    """
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    tested = [i for i, p in enumerate(p_values) if not math.isnan(p)]
    for rank, i in enumerate(sorted(tested, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(tested) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected
