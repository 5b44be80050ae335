"""Records with results that a test draws, as an experiment's cells would have left them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from robust_diffusion.paper.claims.claim import group
from robust_diffusion.records.records import Record


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
    wanted = group({"experiment": experiment, "attack": "clean", **axes}).line.record
    number = len(next(iter(accuracy.values())))
    found = []
    for index, seed in enumerate(seeds if seeds is not None else range(number)):
        record: Record = {
            "cell": f"{experiment}-{sorted(axes.items())}-{fidelity}-{scale}-{seed}",
            "experiment": experiment,
            "scale": scale,
            "fidelity": fidelity,
            "seed": seed,
            "accuracy": {graph: values[index] / 100 for graph, values in accuracy.items()},
            "val_accuracy": 0.8,
            "budget": {"declared": {"max_injected_nodes": 50, "max_edges_per_injected_node": 50}},
            "config": {"seed": seed},
            **more,
        }
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
