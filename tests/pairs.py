"""Few combinations of options instead of all of them."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any


def pairs(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations in which each two values of two axes meet at least once."""
    todo = [
        {i: a, j: b}
        for i, j in combinations(range(len(axes)), 2)
        for a in range(len(axes[i]))
        for b in range(len(axes[j]))
    ]
    rows: list[dict[int, int]] = []
    while todo:
        row = dict(todo[0])
        for axis in range(len(axes)):
            if axis not in row:  # the value that meets most of what is not yet met
                row[axis] = max(
                    range(len(axes[axis])),
                    key=lambda v: sum(({**row, axis: v}).items() >= p.items() for p in todo),
                )
        todo = [pair for pair in todo if not row.items() >= pair.items()]
        rows.append(row)
    return [tuple(values[row[axis]] for axis, values in enumerate(axes)) for row in rows]
