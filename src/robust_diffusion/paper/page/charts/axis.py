"""Axes: positions of values in a chart, with ticks at round numbers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

STEPS = (1, 2, 5)
"""Round numbers, times powers of ten."""


@dataclass(frozen=True)
class Axis:
    """Axis from the value `low` at the position `start` to `high` at `end`.

    An axis of a single value has it in the middle.
    """

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    log: bool = False

    def __call__(self, value: float) -> float:
        """Position of a value."""
        low, high = self.low, self.high
        if low == high:
            return (self.start + self.end) / 2
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def clamped(self, value: float) -> float:
        """Position of the nearest value on the axis."""
        return self(min(max(value, self.low), self.high))


def linear_axis(
    values: Iterable[float],
    *,
    start: float,
    end: float,
    at_least: float = -math.inf,
    at_most: float = math.inf,
) -> Axis:
    """Linear axis around at least one value, with at most seven round ticks."""
    found = list(values)
    low, high = max(min(found), at_least), min(max(found), at_most)
    if low == high:
        low, high = max(low - 1, at_least), min(high + 1, at_most)
    most = 6
    step = next(
        step
        for step in _steps((high - low) / most)
        if math.ceil(high / step) - math.floor(low / step) < most
    )
    first, last = math.floor(low / step), math.ceil(high / step)
    # Products of a whole number, since sums of 0.1 are not round.
    ticks = tuple(round(step * i, 9) for i in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], start, end, ticks)


def log_axis(values: Iterable[float], *, start: float, end: float) -> Axis:
    """Logarithmic axis around at least one positive value."""
    found = list(values)
    low, high = min(found) / 1.15, max(found) * 1.15
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    few = len(decades) <= 4
    every = [step * 10.0**d for d in decades for step in (STEPS if few else (1,))]
    low = max((value for value in every if value <= low), default=low)
    high = min((value for value in every if value >= high), default=high)
    ticks = tuple(value for value in every if low <= value <= high)
    return Axis(low, high, start, end, ticks, log=True)


def _steps(least: float) -> Iterable[float]:
    decade = math.floor(math.log10(least))
    while True:
        yield from (step * 10.0**decade for step in STEPS if step * 10.0**decade >= least * 0.999)
        decade += 1
