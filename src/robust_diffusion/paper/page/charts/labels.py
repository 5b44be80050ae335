"""Placement of labels: where they overlap least, and at a distance from each other."""

from collections.abc import Sequence
from itertools import product

CHARACTER, HEIGHT = 6.8, 12.0
"""Approximate size of a character."""

Box = tuple[float, float, float, float]


class Labels:
    """Greedy placement of the labels of points inside a box."""

    def __init__(self, left: float, right: float, top: float, bottom: float) -> None:
        self._bounds = left, top, right - left, bottom - top
        self._taken: list[Box] = []

    def occupy(self, x: float, y: float, width: float, height: float) -> None:
        """Keep a box free of labels."""
        self._taken.append((x, y, width, height))

    def place(self, label: str, x: float, y: float) -> tuple[float, float, bool]:
        """Start of a label's baseline, and true if it is so far off that it needs a leader."""
        width = CHARACTER * len(label)
        near = [(x + 9, y + 4), (x - 9 - width, y + 4), (x - width / 2, y - 10)]
        near += [(x - width / 2, y + 18), (x + 7, y - 7), (x + 7, y + 15)]
        near += [(x - 7 - width, y - 7), (x - 7 - width, y + 15)]
        shifts = product((22, 36, 50), (-1, 1), (-width / 2, 8, -8 - width))
        far = [(x + aside, y + 4 + side * away) for away, side, aside in shifts]
        costs = [self._cost(place, width) for place in near]
        costs += [self._cost(place, width) + 40 for place in far]
        best = min(range(len(costs)), key=lambda i: costs[i])
        left, baseline = (near + far)[best]
        self.occupy(left, baseline - HEIGHT + 2, width, HEIGHT)
        return left, baseline, best >= len(near)

    def _cost(self, place: tuple[float, float], width: float) -> float:
        """Area that a label would cover, plus ten times its area out of bounds."""
        box = (place[0], place[1] - HEIGHT + 2, width, HEIGHT)
        covered = sum(_overlap(box, other) for other in self._taken)
        # Places that are equally good are told apart by their order, not by rounding errors.
        return round(covered + 10 * (width * HEIGHT - _overlap(box, self._bounds)), 3)


def spread_out(wanted: Sequence[float], distance: float, low: float, high: float) -> list[float]:
    """Positions nearest to the wanted ones that keep a distance and stay within the limits."""

    def first(block: Sequence[int]) -> float:
        """Position of a block's first label: all rest on the mean of what they want."""
        mean = sum(wanted[i] - k * distance for k, i in enumerate(block)) / len(block)
        return max(low, min(mean, high - distance * (len(block) - 1)))

    # Labels that touch form a block.
    blocks: list[list[int]] = []
    for i in sorted(range(len(wanted)), key=lambda i: (wanted[i], i)):
        block = [i]
        while blocks and first(blocks[-1]) + distance * len(blocks[-1]) > first(block):
            block = blocks.pop() + block
        blocks.append(block)
    places = {i: first(block) + k * distance for block in blocks for k, i in enumerate(block)}
    return [places[i] for i in range(len(wanted))]


def _overlap(a: Box, b: Box) -> float:
    width = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    height = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    return max(width, 0.0) * max(height, 0.0)
