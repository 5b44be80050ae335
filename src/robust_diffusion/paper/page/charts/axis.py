"""Axes: from values to places in a picture, with ticks at round numbers."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STEPS = (1, 2, 5)
"""Round numbers, times powers of ten."""


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic axis.

    Args:
        low: Value at its start.
        high: Value at its end; where it is the other, the only value is in the middle.
        start: Place of its start.
        end: Place of its end.
        ticks: Values that are named.
        log: Equal ratios are equally long.
    """

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    log: bool = False

    def __call__(self, value: float) -> float:
        """Place of a value."""
        low, high = self.low, self.high
        if low == high:
            return (self.start + self.end) / 2
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def clamped(self, value: float) -> float:
        """Place of a value, or of the end that it is beyond."""
        return self(min(max(value, self.low), self.high))


def linear_axis(
    values: Iterable[float],
    *,
    start: float,
    end: float,
    most: int = 6,
    at_least: float = -math.inf,
    at_most: float = math.inf,
) -> Axis:
    """An axis from round number to round number around all values.

    Args:
        values: At least one.
        start: Place of its start.
        end: Place of its end.
        most: Ticks.
        at_least: Smallest value that makes sense.
        at_most: Largest value that makes sense.
    """
    found = list(values)
    low, high = max(min(found), at_least), min(max(found), at_most)
    if low == high:
        low, high = max(low - 1, at_least), min(high + 1, at_most)
    step = next(s for s in _steps((high - low) / most) if _span(low, high, s) < most)
    first, last = math.floor(low / step), math.ceil(high / step)
    # Products of a whole number, since sums of 0.1 are not round.
    ticks = tuple(round(step * i, 9) for i in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], start, end, ticks)


def log_axis(values: Iterable[float], *, start: float, end: float) -> Axis:
    """A logarithmic axis around all values.

    Args:
        values: At least one, all above 0.
        start: Place of its start.
        end: Place of its end.
    """
    found = list(values)
    low, high = min(found) / 1.15, max(found) * 1.15
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    few = len(decades) <= 4
    every = [step * 10.0**d for d in decades for step in (STEPS if few else (1,))]
    below = [value for value in every if value <= low]
    above = [value for value in every if value >= high]
    low, high = (below or [low])[-1], (above or [high])[0]
    ticks = tuple(value for value in every if low <= value <= high)
    return Axis(low, high, start, end, ticks, log=True)


def spread_out(wanted: Sequence[float], distance: float, low: float, high: float) -> list[float]:
    """Places as near to the wanted ones as labels of some height allow.

    Args:
        wanted: One place per label.
        distance: Least distance between two.
        low: Smallest place, where there is room for all.
        high: Largest place.
    """
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    # Labels that touch form a block, which rests where the mean of its wishes is.
    blocks: list[tuple[float, list[int]]] = []
    for i in order:
        block = [i]
        top = _top(block, wanted, distance, low, high)
        while blocks and blocks[-1][0] + distance * len(blocks[-1][1]) > top:
            block = blocks.pop()[1] + block
            top = _top(block, wanted, distance, low, high)
        blocks.append((top, block))
    places = [0.0] * len(wanted)
    for top, block in blocks:
        for k, i in enumerate(block):
            places[i] = top + k * distance
    return places


def _top(
    block: Sequence[int], wanted: Sequence[float], distance: float, low: float, high: float
) -> float:
    mean = sum(wanted[i] - k * distance for k, i in enumerate(block)) / len(block)
    return max(low, min(mean, high - distance * (len(block) - 1)))


def _steps(least: float) -> Iterable[float]:
    decade = math.floor(math.log10(least))
    while True:
        yield from (step * 10.0**decade for step in STEPS if step * 10.0**decade >= least * 0.999)
        decade += 1


def _span(low: float, high: float, step: float) -> int:
    return math.ceil(high / step) - math.floor(low / step)
