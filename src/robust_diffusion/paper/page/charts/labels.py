"""Labels of points: each where it covers least."""

from itertools import product

CHARACTER, HEIGHT = 6.8, 12.0
"""Size of text, about."""

Box = tuple[float, float, float, float]


class Labels:
    """Finds room for labels, one after the other.

    Args:
        left: Where the room starts.
        right: Where it ends.
        top: Its upper edge.
        bottom: Its lower edge.
    """

    def __init__(self, left: float, right: float, top: float, bottom: float) -> None:
        self._bounds = left, right, top, bottom
        self._taken: list[Box] = []

    def occupy(self, x: float, y: float, width: float, height: float) -> None:
        """Keep a box free of labels."""
        self._taken.append((x, y, width, height))

    def place(self, label: str, x: float, y: float) -> tuple[float, float, bool]:
        """Start of a label's baseline, and whether it lies so far off that it needs a line.

        Args:
            label: Its text.
            x: Place of its point.
            y: Place of its point.
        """
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
        """Area that a label would cover, or lie outside with."""
        left, right, top, bottom = self._bounds
        x, y = place[0], place[1] - HEIGHT + 2
        inside = _overlap((x, y, width, HEIGHT), (left, top, right - left, bottom - top))
        covered = sum(_overlap((x, y, width, HEIGHT), box) for box in self._taken)
        # Places that are equally good are told apart by their order, not by rounding errors.
        return round(covered + 10 * (width * HEIGHT - inside), 3)


def _overlap(a: Box, b: Box) -> float:
    width = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    height = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    return max(width, 0.0) * max(height, 0.0)
