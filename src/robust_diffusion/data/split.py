"""The degree split by which GRB sorts test nodes into easy, medium and hard."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from robust_diffusion.checks import Natural, validated
from robust_diffusion.errors import DataError

log = logging.getLogger(__name__)

FEWEST_NODES = 20


def split_by_degree(graph: Data, seed: int, *, where: str | Path) -> Data:
    """A checked graph with a split of its labelled nodes; see `degree_split`."""
    n = graph.num_nodes
    labelled = (graph.y >= 0).numpy()
    degree = np.bincount(graph.edge_index[0].numpy(), minlength=n)[labelled]
    for name, index in degree_split(degree, seed, where=where).items():
        graph[f"index_{name}"] = torch.from_numpy(np.flatnonzero(labelled)[index])
    graph.split_drawn = True
    log.info("%s: split drawn by degree, seed %d", where, seed)
    return graph


@validated("dataset.source")
def degree_split(
    degree: NDArray[np.integer], split_seed: Natural = 0, *, where: str | Path = "graph"
) -> dict[str, NDArray[np.int64]]:
    """Split nodes by degree into train, val and three test sets of growing difficulty.

    Nodes are sorted by degree; the lowest and the highest 5 % are never tested; the rest is cut
    into thirds, and 10 % of all nodes are drawn from each as easy (lowest degrees), medium and
    hard. Of the other nodes, 60 % of all are drawn for training and the rest validates. The indices
    of each part are sorted.

    Reference: GRB, arXiv:2111.04314, section on data splitting.

    Args:
        degree: Number of neighbours of each of the n nodes, n at least 20.
        split_seed: Of the draw. The sort is stable, so the split is the same on every platform.
        where: File or folder that the error message names.

    Raises:
        DataError: The graph is too small to be split.
        ConfigError: The seed is no whole number of at least 0.
    """
    if degree.size < FEWEST_NODES:
        raise DataError(
            f"{where}: has {degree.size} nodes, too few to split by degree; it takes at least "
            f"{FEWEST_NODES} with a label, or a split of your own"
        )
    generator = np.random.default_rng(split_seed)
    n = degree.size
    by_degree = np.argsort(degree, kind="stable")
    bounds = [int(n * share) for share in (0.05, 0.35, 0.65, 0.95)]
    tests = {
        f"test_{name}": generator.choice(by_degree[low:high], n // 10, replace=False)
        for name, low, high in zip(("easy", "medium", "hard"), bounds[:-1], bounds[1:], strict=True)
    }
    test = np.concatenate(list(tests.values()))
    is_rest = np.ones(n, dtype=bool)
    is_rest[test] = False
    rest = np.flatnonzero(is_rest)
    train = generator.choice(rest, int(n * 0.6), replace=False)
    is_rest[train] = False
    splits = {"train": train, "val": np.flatnonzero(is_rest), "test": test, **tests}
    return {name: np.sort(index).astype(np.int64) for name, index in splits.items()}


def split_hash(splits: Mapping[str, NDArray[np.int64]]) -> str:
    """16 hexadecimal digits of sorted node indices by part, the same on every platform."""
    digest = hashlib.sha256()
    for name in sorted(splits):
        digest.update(f"{name}:{splits[name].size}:".encode())
        digest.update(splits[name].astype("<i8").tobytes())
    return digest.hexdigest()[:16]
