"""Lower bound on the time of an epoch: only its dense products and its sums over edges.

An epoch consists of forward and backward on the train view and forward on the validation view. Each
operation is timed separately, at the shapes that occur, with the fastest form in PyTorch.
"""

import time
from itertools import pairwise
from statistics import median

import torch
import torch.nn.functional as F
from measure import by_turns
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.data import GraphDataModule
from robust_diffusion.operators import Graph

HIDDEN, HEADS_WIDTH, LAYERS, EVALUATIONS = 64, 64, 3, 4
"""Width, total width of the heads, layers, and evaluations of the right-hand side per step."""

FORWARD, BACKWARD = 3, 6
"""Passes over the edges per evaluation: scores, gradient norm and diffusion; backward, gradients
of keys, queries, weights and features through each of them."""


def floor_seconds(datamodule: GraphDataModule) -> float:
    """Measure the seconds of the dense products and the sparse sums of one epoch."""
    train, val = datamodule.view("train"), datamodule.view("val")
    sparse = _sparse(train, FORWARD + BACKWARD) + _sparse(val, FORWARD)
    return dense_seconds(datamodule) + sparse


def dense_seconds(datamodule: GraphDataModule) -> float:
    """Measure the seconds of the dense products of one epoch."""
    widths = [datamodule.num_features, *[HIDDEN] * (LAYERS - 1), datamodule.num_classes]
    train, val = datamodule.view("train"), datamodule.view("val")
    return _dense(train, widths, products=3) + _dense(val, widths, products=1)


def _dense(view: Data, widths: list[int], products: int) -> float:
    """Measure the products of layers, keys and queries; each has two more in the backward pass."""
    n = view.num_nodes
    total = 0.0
    for before, after in pairwise(widths):
        total += _product(n, before, after) + EVALUATIONS * _product(n, after, 2 * HEADS_WIDTH)
    return products * total


def _product(rows: int, inner: int, columns: int) -> float:
    left, right = torch.randn(rows, inner), torch.randn(inner, columns)
    return _median(lambda: left @ right)


def _sparse(view: Data, passes: int) -> float:
    graph = Graph.from_edge_index(view.edge_index, num_nodes=view.num_nodes)
    z = torch.randn(view.num_nodes, HIDDEN)
    columns, pointers = graph.edges.sources, graph.edges.rowptr

    def one() -> Tensor:
        return F.embedding_bag(
            columns,
            z,
            pointers,
            mode="sum",
            per_sample_weights=graph.full_weight,
            include_last_offset=True,
        )

    return LAYERS * EVALUATIONS * passes * _median(one)


def _median(run: object) -> float:
    # CPU time, which other programs do not lengthen.
    seconds = by_turns({"run": run}, repeat=9, clock=time.process_time)  # type: ignore[dict-item]
    return median(seconds["run"])
