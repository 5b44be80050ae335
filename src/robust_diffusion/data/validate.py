"""Raw arrays, checked and assembled into a graph."""

import logging
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from robust_diffusion.errors import DataError

log = logging.getLogger(__name__)

FEWEST_STEPS = 1000
"""Steps of float32 over the range of a feature below which it is kept in float64."""

SPLITS = ("train", "val", "test", "test_easy", "test_medium", "test_hard")


def build_graph(
    adjacency: sp.sparray | sp.spmatrix,
    features: NDArray[np.generic],
    labels: NDArray[np.generic],
    splits: Mapping[str, NDArray[np.generic]],
    *,
    where: str | Path,
    every_class: bool = True,
    doubles: bool = False,
) -> Data:
    """Check raw arrays and assemble an undirected graph without self-loops or duplicate edges.

    An asymmetric adjacency is symmetrised, self-loops are dropped and weights other than 1 are
    read as 1, each with a warning.

    Args:
        adjacency: n x n; its non-zero entries are the edges.
        features: n x f, finite.
        labels: n class numbers, 0..C-1 without a gap, or -1 at nodes of no split for none.
        splits: Node indices of `train`, `val`, `test` and, where there are any, `test_easy`,
            `test_medium`, `test_hard`; train, val and the tests are disjoint.
        where: File or folder that error messages name.
        every_class: Refuse labels that leave one of 0..C-1 out.
        doubles: Keep the features in float64 if float32 would leave a column that varies with
            fewer than 1000 steps over its range, as it does time stamps.

    Returns:
        `Data` with x (float32, but see `doubles`), y, edge_index (both directions, sorted),
        num_classes and one `index_<split>` per split.

    Raises:
        DataError: An array of the wrong shape, or a value that no graph can have.
    """
    edge_index = _edges(adjacency, where)
    n = adjacency.shape[0]
    x = _features(features, n, where)
    if doubles and _is_coarse(features, x.numpy()):
        x = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float64))
    y = _labels(labels, n, where, every_class=every_class)
    data = Data(x=x, y=y, edge_index=edge_index)
    data.num_classes = int(y.max()) + 1
    for name, index in _splits(splits, n, where).items():
        if (unlabelled := index[y[index] < 0]).numel():
            raise DataError(
                f"{where}: node {int(unlabelled[0])} of {name} has the label -1, that is none; "
                "leave it out"
            )
        data[f"index_{name}"] = index
    return data


def check_edge_index(edges: NDArray[np.generic], num_nodes: int, *, where: str | Path) -> None:
    """Refuse, by a `DataError`, edges that are no 2 x e numbers of nodes."""
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise DataError(
            f"{where}: edge_index has shape {edges.shape} and type {edges.dtype}; it must be 2 x e "
            "node numbers"
        )
    if (wrong := _outside(edges, num_nodes)) is not None:
        raise DataError(
            f"{where}: edge_index names node {wrong}; with {num_nodes} rows of features, nodes are "
            f"0..{num_nodes - 1}"
        )


def symmetrized(adjacency: sp.sparray | sp.spmatrix, *, where: str | Path) -> sp.csr_array:
    """Both directions of every edge, each once, without self-loops; weights become 1.

    Raises:
        DataError: No graph has this adjacency matrix.
    """
    row, col, _ = _entries(adjacency, where)
    distinct = row != col
    _, both = _both_ways(row[distinct], col[distinct], adjacency.shape[0])
    return both.astype(np.int8)


def _edges(adjacency: sp.sparray | sp.spmatrix, where: str | Path) -> torch.Tensor:
    row, col, weight = _entries(adjacency, where)
    n = adjacency.shape[0]
    if (weight != 1).any():
        log.warning("%s: adjacency holds weights other than 1; they are read as 1", where)
    loops = row == col
    if loops.any():
        log.warning("%s: adjacency holds %d self-loops; dropped", where, loops.sum())
        row, col = row[~loops], col[~loops]
    stored, both = _both_ways(row, col, n)
    if both.nnz != stored:
        message = "%s: adjacency is not symmetric, %d edges lack their reverse; added"
        log.warning(message, where, both.nnz - stored)
    rows = np.repeat(np.arange(n), np.diff(both.indptr))
    return torch.from_numpy(np.stack([rows, both.indices.astype(np.int64)]))


def _both_ways(row: NDArray[np.int64], col: NDArray[np.int64], n: int) -> tuple[int, sp.csr_array]:
    """Number of different edges, and the sorted matrix of them and their reverses."""
    # Booleans, so that an edge listed twice is one edge. This is linear in the number of edges,
    # which sorting them or np.unique is not.
    stored = sp.csr_array((np.ones(row.size, dtype=bool), (row, col)), shape=(n, n))
    both = sp.csr_array(stored + stored.T)
    both.sort_indices()
    return stored.nnz, both


def _entries(
    adjacency: sp.sparray | sp.spmatrix, where: str | Path
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.generic]]:
    """Row, column and weight of the checked matrix's non-zero entries."""
    if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise DataError(f"{where}: adjacency has shape {adjacency.shape}; it must be n x n")
    n = adjacency.shape[0]
    if n == 0:
        raise DataError(f"{where}: adjacency has no nodes")
    if not _is_numeric(adjacency.dtype):
        raise DataError(f"{where}: adjacency is of type {adjacency.dtype}; use 0 and 1")
    coo = sp.coo_array(adjacency)
    if not np.isfinite(coo.data).all():
        raise DataError(f"{where}: adjacency holds NaN or infinite weights; use 0 and 1")
    ends = np.concatenate([coo.row, coo.col])
    if (wrong := _outside(ends, n)) is not None:
        raise DataError(f"{where}: adjacency names node {wrong}; nodes are 0..{n - 1}")
    nonzero = coo.data != 0
    row, col = (index[nonzero].astype(np.int64) for index in (coo.row, coo.col))
    return row, col, coo.data[nonzero]


def _outside(nodes: NDArray[np.generic], n: int) -> int | None:
    """A number that is none of 0..n-1, if there is one."""
    extremes = [int(nodes.min()), int(nodes.max())] if nodes.size else []
    return next((node for node in extremes if not 0 <= node < n), None)


def _is_numeric(dtype: np.dtype[np.generic]) -> bool:
    return np.issubdtype(dtype, np.number) or dtype == np.bool_


def _features(features: NDArray[np.generic], n: int, where: str | Path) -> torch.Tensor:
    if features.ndim != 2 or features.shape[0] != n or features.shape[1] == 0:
        raise DataError(
            f"{where}: features have shape {features.shape}; they must be {n} x f, one row per node"
        )
    if not _is_numeric(features.dtype) or np.iscomplexobj(features):
        raise DataError(f"{where}: features are of type {features.dtype}; they must be real")
    with np.errstate(over="ignore"):
        x = np.ascontiguousarray(features, dtype=np.float32)
    bad = ~np.isfinite(x)
    if bad.any():
        node, column = (int(i) for i in np.argwhere(bad)[0])
        raise DataError(
            f"{where}: features hold {bad.sum()} values that are not finite in float32, the first "
            f"({features[node, column]}) at node {node}, column {column}; replace them"
        )
    return torch.from_numpy(x)


def _is_coarse(features: NDArray[np.generic], single: NDArray[np.float32]) -> bool:
    """True if a column that varies has few steps of float32 over its range."""
    if features.dtype == np.bool_ or features.dtype.itemsize < 4 or features.dtype == np.float32:
        return False  # float32 holds all of these
    low, high = (of(0).astype(np.float64) for of in (features.min, features.max))
    steps = np.spacing(np.abs(single).max(0)).astype(np.float64)
    return bool(((high > low) & (high - low < FEWEST_STEPS * steps)).any())


def _labels(
    labels: NDArray[np.generic], n: int, where: str | Path, *, every_class: bool
) -> torch.Tensor:
    flat = labels.reshape(-1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.shape != (n,):
        raise DataError(f"{where}: labels have shape {labels.shape}; they must be {n}, one each")
    if not np.issubdtype(flat.dtype, np.number) or np.iscomplexobj(flat):
        raise DataError(f"{where}: labels are of type {flat.dtype}; number the classes 0..C-1")
    broken = flat[~(np.isfinite(flat) & (flat == np.floor(flat)))]
    if broken.size:
        raise DataError(f"{where}: label {broken[0]} is not whole; number the classes 0..C-1")
    present = np.sort(flat[flat != -1])
    if not present.size or present[0] < 0:
        raise DataError(
            f"{where}: label {flat.min()} is out of range; number the classes 0..C-1, with -1 for "
            "the nodes that have none"
        )
    if not every_class:
        return torch.from_numpy(flat.astype(np.int64))
    different = 1 + int((present[1:] != present[:-1]).sum())
    if present[-1] != different - 1:
        raise DataError(
            f"{where}: label {present[-1]} is out of range; {different} different labels occur, so "
            f"they must be 0..{different - 1}"
        )
    if different == 1:
        raise DataError(f"{where}: labels are all {present[0]}; there must be two classes at least")
    return torch.from_numpy(flat.astype(np.int64))


def _splits(
    splits: Mapping[str, NDArray[np.generic]], n: int, where: str | Path
) -> dict[str, torch.Tensor]:
    checked = {}
    for name, index in splits.items():
        if index.ndim != 1 or index.size == 0 or not np.issubdtype(index.dtype, np.integer):
            raise DataError(
                f"{where}: index_{name} has shape {index.shape} and type {index.dtype}; it must be "
                "a non-empty list of node numbers"
            )
        if (wrong := _outside(index, n)) is not None:
            raise DataError(f"{where}: index_{name} names node {wrong}; nodes are 0..{n - 1}")
        index = np.sort(index).astype(np.int64)
        twice = index[1:][index[1:] == index[:-1]]
        if twice.size:
            raise DataError(f"{where}: index_{name} names node {twice[0]} twice; name each once")
        checked[name] = index
    tests = [name for name in checked if name.startswith("test")]
    for a, b in (("train", "val"), *product(("train", "val"), tests)):
        if a not in checked or b not in checked:
            continue
        common = np.intersect1d(checked[a], checked[b])
        if common.size:
            raise DataError(
                f"{where}: node {common[0]} is in both index_{a} and index_{b}; they must be "
                "disjoint"
            )
    return {name: torch.from_numpy(index) for name, index in checked.items()}
