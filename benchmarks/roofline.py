"""Memory traffic of an epoch of Beltrami, against the measured bandwidth.

Counted for each evaluation of the right-hand side by the compiled kernels, in single precision:
arrays of n x 64 numbers, values and indices of e edges, and rows of 64 numbers fetched for an edge.
`streamed` counts each array once per pass, as if all rows that edges fetch were in cache; `fetched`
adds every row that an edge fetches, as if none were. The actual traffic lies in between.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from floor import BACKWARD as FETCHES_BACKWARD
from floor import EVALUATIONS, HIDDEN, LAYERS, dense_seconds
from floor import FORWARD as FETCHES_FORWARD
from measure import by_turns, summary
from networks import ONE_STEP, load, program
from torch_geometric.data import Data

NUMBER = 4
"""Bytes of a number in single precision."""

TRIAD = 2**25
"""Length of each of three arrays: 134 MB, more than caches hold."""

ARRAYS_FORWARD = 3 + 2 + 1 + 2 + 10
"""Projection to keys and queries, scores, gradient norm, diffusion, and the sums of rk4."""

ARRAYS_BACKWARD = 3 + 3 + 2 + 2 + 6 + 10
"""Gradients of the flow, of the state, of keys, of queries, of the projection, and of the sums."""

EDGES_FORWARD, EDGES_BACKWARD = 11, 30
"""Attention of 4 heads and their mean, distances, modulation, indices; and their gradients."""


def roofline(repeat: int) -> dict[str, Any]:
    """Measure an epoch in turn with a triad for bandwidth, and compute its bytes and products."""
    first, second, out = (torch.ones(TRIAD) for _ in range(3))
    measured: dict[str, Any] = {}
    for name in ("cora", "amazon_computer"):
        datamodule = load(name)
        runs: dict[str, Callable[[], object]] = {
            "epoch": program("compiled", datamodule, ONE_STEP),
            "triad": lambda: torch.add(first, second, alpha=2.0, out=out),
        }
        seconds = by_turns(runs, repeat=repeat, clock=time.process_time)
        views = [datamodule.view(role) for role in ("train", "val")]
        measured[name] = {
            "epoch": summary(seconds["epoch"]),
            "gigabytes_per_second": 3 * NUMBER * TRIAD / median(seconds["triad"]) / 1e9,
            "streamed_mb": _bytes(*views, _streamed) / 1e6,
            "fetched_mb": _bytes(*views, _fetched) / 1e6,
            "products_ms": 1e3 * dense_seconds(datamodule),
        }
    return measured


def _bytes(train: Data, val: Data, of: Callable[[Data, bool], int]) -> int:
    """Sum the bytes of forward and backward on the train view, and forward for validation."""
    return NUMBER * (of(train, False) + of(train, True) + of(val, False))  # noqa: FBT003


def _streamed(view: Data, backward: bool) -> int:
    arrays, edges = ARRAYS_FORWARD, EDGES_FORWARD
    if backward:
        arrays, edges = ARRAYS_BACKWARD, EDGES_BACKWARD
    evaluation = arrays * HIDDEN * view.num_nodes + edges * _edges(view)
    # LayerNorm and Linear of the input: features are read twice and written once, also backward.
    return LAYERS * EVALUATIONS * evaluation + 3 * view.num_nodes * view.num_features


def _fetched(view: Data, backward: bool) -> int:
    passes = FETCHES_BACKWARD if backward else FETCHES_FORWARD
    fetched = LAYERS * EVALUATIONS * passes * HIDDEN * _edges(view)
    return _streamed(view, backward) + fetched


def _edges(view: Data) -> int:
    """Count the edges, including self-loops."""
    return int(view.num_edges) + int(view.num_nodes)
