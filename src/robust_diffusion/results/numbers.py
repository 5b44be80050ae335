"""Numbers as text: means with deviations, signed differences, p-values."""

import math
from collections.abc import Iterable

import numpy as np

MINUS = "\N{MINUS SIGN}"


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
    """Format a number with its sign, unless it rounds to 0."""
    rounded = round(value, decimals)
    return f"{rounded:+.{decimals}f}".replace("-", MINUS) if rounded else f"{0:.{decimals}f}"


def p_value(p: float) -> str:
    """Format a p-value to two digits."""
    return "< 0.001" if p < 0.001 else f"{p:.2g}"
