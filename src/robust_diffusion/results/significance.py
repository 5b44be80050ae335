"""Tests of a measured mean against a reported one."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats


def welch_p(values: Sequence[float], mean: float, std: float, runs: int) -> float | None:
    """Two-sided p-value of Welch's t-test against a mean that was reported with its deviation.

    Reference: Welch 1947, Biometrika 34.

    Args:
        values: What was measured, one number per seed.
        mean: The other mean, in the same unit.
        std: Its sample standard deviation.
        runs: Number of values behind it.

    Returns:
        The p-value; `None` with fewer than two values on a side, or no spread on either.
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

    Args:
        values: What was measured, one number per seed.
        mean: The reported mean, in the same unit.

    Returns:
        The p-value; `None` with fewer than two values, or values without spread.
    """
    if len(values) < 2 or _std(values) == 0:
        return None
    return float(stats.ttest_1samp(values, mean).pvalue)


def _std(values: Sequence[float]) -> float:
    """Sample standard deviation; 0 for equal values, which rounding can give one above it."""
    return 0.0 if min(values) == max(values) else float(np.std(values, ddof=1))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values that stay valid although there are many of them.

    The i-th smallest of m is multiplied by m - i + 1, none becomes smaller than one before it.

    Reference: Holm 1979, Scandinavian Journal of Statistics 6.

    Args:
        p_values: In any order.

    Returns:
        The corrected ones in the same order, each at most 1.
    """
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected
