"""A small graph as raw arrays, and as a folder in GRB's file layout."""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

NUM_NODES = 20
# A ring with two chords.
EDGES = sorted({(u, (u + 1) % NUM_NODES) for u in range(NUM_NODES)} | {(0, 10), (5, 15)})
FILES = ("adj", "features", "labels", "index")


def symmetric(edges: list[tuple[int, int]], num_nodes: int = NUM_NODES) -> sp.csr_matrix:
    """Adjacency matrix with each edge in both directions."""
    row, col = np.array(edges).T
    half = sp.coo_matrix((np.ones(len(edges)), (row, col)), shape=(num_nodes, num_nodes))
    return ((half + half.T) > 0).astype(np.float32).tocsr()


def raw_graph(**changes: Any) -> dict[str, Any]:
    """Arguments of `build_graph` for a good graph, some of them replaced."""
    features = np.random.default_rng(0).normal(size=(NUM_NODES, 3))
    return {
        "adjacency": symmetric(EDGES),
        "features": features,
        "labels": np.arange(NUM_NODES) % 4,
        "splits": splits(),
    } | changes


def splits(**changes: Any) -> dict[str, Any]:
    """A good split, some of its parts replaced."""
    return {
        "train": np.arange(8),
        "val": np.arange(8, 11),
        "test": np.arange(11, 20),
        "test_easy": np.arange(11, 14),
        "test_medium": np.arange(14, 17),
        "test_hard": np.arange(17, 20),
    } | changes


def write_grb(root: Path, *, name: str = "ring", compressed: bool = True, **changes: Any) -> Path:
    """Write a graph to `<root>/grb-<name>/` and return that folder."""
    graph = raw_graph(**changes)
    folder = root / f"grb-{name}"
    folder.mkdir(parents=True)
    save = np.savez_compressed if compressed else np.savez
    sp.save_npz(folder / "adj.npz", graph["adjacency"], compressed=compressed)
    save(folder / "features.npz", data=graph["features"])
    save(folder / "labels.npz", data=graph["labels"])
    index = {f"index_{key}": nodes for key, nodes in graph["splits"].items()}
    save(folder / "index.npz", **index)
    return folder
