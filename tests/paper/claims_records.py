"""Records with results that a test draws, as an experiment's runs would have left them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from robust_diffusion.paper.claims import group, line
from tests.paper.records import Record, finished


def records_of(
    experiment: str,
    axes: Mapping[str, Any],
    accuracy: Mapping[str, Sequence[float]],
    *,
    scale: str = "full",
    fidelity: str = "paper",
    seeds: Iterable[int] | None = None,
    **more: Any,
) -> list[Record]:
    """One record per seed, accuracies given in points."""
    wanted = line(group({"experiment": experiment, "attack": "clean", **axes})).record
    number = len(next(iter(accuracy.values())))
    found = []
    for index, seed in enumerate(seeds if seeds is not None else range(number)):
        cell = f"{experiment}-{sorted(axes.items())}-{fidelity}-{scale}-{seed}"
        own = {"experiment": experiment, "scale": scale, "fidelity": fidelity, "seed": seed}
        values = {graph: values[index] / 100 for graph, values in accuracy.items()}
        record = finished(**{"run": cell, "flow": None, "accuracy": values, **own, **more})
        for path, value in wanted.items():
            _put(record, path, value)
        found.append(record)
    return found


def with_moments(mean: float, std: float, count: int, seed: int) -> list[float]:
    """Values of exactly that mean and sample standard deviation."""
    if count == 1:
        return [float(mean)]
    drawn = np.random.default_rng(seed).normal(size=count)
    drawn = (drawn - drawn.mean()) / drawn.std(ddof=1)
    return [float(value) for value in mean + std * drawn]


def _put(record: Record, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    node = record
    for key in parents:
        node = node.setdefault(key, {})
    node[last] = value
