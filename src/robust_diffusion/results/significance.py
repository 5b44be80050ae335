"""Tests of a measured mean against a reported one, and its confidence interval."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats


def welch_p(values: Sequence[float], mean: float, std: float, runs: int) -> float | None:
    """Two-sided p-value of Welch's t-test of measured values, one per seed.

    They are tested against a mean reported with its sample standard deviation over `runs` values.
    `None` with fewer than two values on a side, or no spread on either.

    Reference: Welch 1947, Biometrika 34.
    """
    if len(values) < 2 or runs < 2:
        return None
    own_mean, own_std = float(np.mean(values)), _std(values)
    if own_std == 0 and std == 0:
        return None
    result = stats.ttest_ind_from_stats(
        own_mean, own_std, len(values), mean, std, runs, equal_var=False
    )
    return float(result.pvalue)


def one_sample_p(values: Sequence[float], mean: float) -> float | None:
    """Two-sided p-value of Student's t-test against a mean that was reported without a deviation.

    `None` with fewer than two values, or values without spread.
    """
    if len(values) < 2 or _std(values) == 0:
        return None
    return float(stats.ttest_1samp(values, mean).pvalue)


def mean_interval(values: Sequence[float], level: float) -> tuple[float, float] | None:
    """Student's confidence interval of a mean, at a level in 0..1; `None` as of `one_sample_p`."""
    if len(values) < 2 or _std(values) == 0:
        return None
    error = _std(values) / math.sqrt(len(values))
    low, high = stats.t.interval(level, len(values) - 1, float(np.mean(values)), error)
    return float(low), float(high)


def _std(values: Sequence[float]) -> float:
    """Sample standard deviation; 0 for equal values, which rounding can give one above it."""
    return 0.0 if min(values) == max(values) else float(np.std(values, ddof=1))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number, in the order given, each at most 1.

    The i-th smallest of m is multiplied by m - i + 1, none becomes smaller than one before it.

    Reference: Holm 1979, Scandinavian Journal of Statistics 6.
    """
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected
