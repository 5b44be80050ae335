"""Checks of raw arrays and PyG's `Data`, and their assembly into a graph."""

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.data.files import NUMBERS
from robust_diffusion.errors import DataError

log = logging.getLogger(__name__)

FEWEST_STEPS = 1000
"""Steps of float32 over the range of a feature below which it is refused."""

SPLITS = ("train", "val", "test", "test_easy", "test_medium", "test_hard")


def build_graph(
    adjacency: sp.sparray | sp.spmatrix,
    features: NDArray[np.generic],
    labels: NDArray[np.generic],
    splits: Mapping[str, object],
    *,
    where: str | Path,
    every_class: bool = True,
    plain_edges: bool = True,
) -> Data:
    """Check raw arrays and assemble an undirected graph without self-loops or duplicate edges.

    An asymmetric adjacency is symmetrised, self-loops are dropped and weights other than 1 are
    read as 1, each with a warning.

    Args:
        adjacency: n x n; its non-zero entries are the edges.
        features: n x f, finite.
        labels: n class numbers, 0..C-1 without a gap, or -1 for unlabelled nodes outside the split.
        splits: Nodes of `train`, `val`, `test` and optionally `test_easy`, `test_medium` and
            `test_hard`; see `node_numbers`. Train, val and test sets must be disjoint.
        where: File or folder for error messages.
        every_class: Reject labels if one of 0..C-1 is missing.
        plain_edges: Warn about repairs of the adjacency; set to false for files in which directed
            edges, weights and self-loops are usual.

    Returns:
        `Data` with x (float32), y, edge_index (both directions, sorted),
        num_classes and one `index_<split>` per split.

    Raises:
        DataError: An array has the wrong shape, or a value is invalid.
    """
    edge_index = _edges(adjacency, where, log.warning if plain_edges else log.debug)
    n = adjacency.shape[0]
    x = _features(features, n, where)
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


def finite_rows(x: Float[Tensor, "n f"]) -> Bool[Tensor, " n"]:
    """Return which rows are finite, part by part, since `isfinite` copies its input."""
    return torch.cat([part.isfinite().all(1) for part in torch.split(x, 4096)])


def check_edge_index(edges: NDArray[np.generic], num_nodes: int, *, where: str | Path) -> None:
    """Raise a `DataError` unless edges are 2 x e node numbers."""
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise DataError(
            f"{where}: edge_index has shape {edges.shape} and type {edges.dtype}; it must be 2 x e "
            "node numbers"
        )
    for node in (int(edges.min()), int(edges.max())) if edges.size else ():
        if not 0 <= node < num_nodes:
            raise DataError(
                f"{where}: edge_index names node {node}; with {num_nodes} rows of features, nodes "
                f"are 0..{num_nodes - 1}"
            )


def node_numbers(nodes: object, n: int, name: str) -> Int[Tensor, "_"]:
    """Return the sorted numbers of nodes from a boolean mask or a list of numbers."""
    try:
        # torch supports neither negative strides nor other byte orders.
        if isinstance(nodes, np.ndarray):
            nodes = nodes.astype(nodes.dtype.newbyteorder("="))
        tensor = torch.as_tensor(nodes).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise DataError(
            f"{name}: is a {type(nodes).__name__}; give a mask, node numbers, or a name like test"
        ) from None
    if tensor.dtype == torch.bool and tensor.shape != (n,):
        remedy = f"; of several splits take one: {name}[:, 0]" if tensor.ndim == 2 else ""
        raise DataError(
            f"{name}: has shape {tuple(tensor.shape)}; a mask of this graph has {n} values{remedy}"
        )
    index = tensor.nonzero().squeeze(1) if tensor.dtype == torch.bool else tensor
    if index.ndim != 1 or not index.numel():
        problem = "names no node" if not index.numel() else f"has shape {tuple(tensor.shape)}"
        raise DataError(f"{name}: {problem}; give a mask, or the numbers of one node at least")
    if index.is_floating_point() or index.is_complex():
        raise DataError(f"{name}: is of type {index.dtype}; use bool for a mask, int64 for numbers")
    index = index.long().sort().values
    for node in (int(index[0]), int(index[-1])):
        if not 0 <= node < n:
            raise DataError(f"{name}: names node {node}; nodes are 0..{n - 1}")
    twice = index[1:][index[1:] == index[:-1]]
    if twice.numel():
        raise DataError(
            f"{name}: names node {int(twice[0])} twice; name each once (a mask is of type bool)"
        )
    return index


def _edges(
    adjacency: sp.sparray | sp.spmatrix, where: str | Path, warn: Callable[..., None]
) -> Int[Tensor, "2 e"]:
    n = adjacency.shape[0]
    if adjacency.shape != (n, n) or not n or adjacency.dtype.kind not in NUMBERS:
        raise DataError(
            f"{where}: adjacency has shape {adjacency.shape} and type {adjacency.dtype}; it must "
            "be n x n numbers, n above 0"
        )
    coo = sp.coo_array(adjacency)
    if not np.isfinite(coo.data).all():
        raise DataError(f"{where}: adjacency holds NaN or infinite weights; use 0 and 1")
    row, col, weight = (array[coo.data != 0] for array in (coo.row, coo.col, coo.data))
    if (weight != 1).any():
        warn("%s: adjacency holds weights other than 1; they are read as 1", where)
    loops = row == col
    if loops.any():
        warn("%s: adjacency holds %d self-loops; dropped", where, loops.sum())
    ends = row[~loops], col[~loops]
    # Booleans, so that repeated edges are merged, in linear time, unlike by sorting or np.unique.
    stored = sp.csr_array((np.ones(ends[0].size, dtype=bool), ends), shape=(n, n))
    both = sp.csr_array(stored + stored.T)
    if both.nnz != stored.nnz:
        message = "%s: adjacency is not symmetric, %d edges lack their reverse; added"
        warn(message, where, both.nnz - stored.nnz)
    both.sort_indices()
    rows = np.repeat(np.arange(n), np.diff(both.indptr))
    return torch.from_numpy(np.stack([rows, both.indices.astype(np.int64)]))


def _features(features: NDArray[np.generic], n: int, where: str | Path) -> Tensor:
    right_shape = features.ndim == 2 and features.shape[0] == n and features.shape[1] > 0
    if not right_shape or features.dtype.kind not in NUMBERS:
        raise DataError(
            f"{where}: features have shape {features.shape} and type {features.dtype}; they must "
            f"be {n} x f real numbers, one row per node"
        )
    with np.errstate(over="ignore"):
        x = np.ascontiguousarray(features, dtype=np.float32)
    bad = ~np.isfinite(x)
    if bad.any():
        node, column = (int(i) for i in np.argwhere(bad)[0])
        raise DataError(
            f"{where}: features hold {bad.sum()} values that are not finite in float32, the first "
            f"({features[node, column]}) at node {node}, column {column}; replace them"
        )
    low, high = x.min(0), x.max(0)
    size = np.maximum(np.abs(low), np.abs(high))
    coarse = (high > low) & (high - low < FEWEST_STEPS * np.spacing(size))
    # Values that float32 holds exactly lose nothing.
    if coarse.any() and not np.array_equal(x[:, coarse], features[:, coarse]):
        column = int(coarse.argmax())
        raise DataError(
            f"{where}: features of column {column} are {low[column]:g} to {high[column]:g}, which "
            "float32 hardly tells apart; subtract their mean"
        )
    return torch.from_numpy(x)


def _labels(
    labels: NDArray[Any], n: int, where: str | Path, *, every_class: bool
) -> Int[Tensor, " n"]:
    flat = labels.reshape(-1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.shape != (n,) or flat.dtype.kind not in "iuf":
        raise DataError(
            f"{where}: labels have shape {labels.shape} and type {labels.dtype}; they must be {n} "
            "class numbers, one each"
        )
    is_class = np.isfinite(flat) & (flat == np.floor(flat)) & (flat >= 0)
    if (wrong := flat[~is_class & (flat != -1)]).size or not is_class.any():
        raise DataError(
            f"{where}: label {wrong[0] if wrong.size else -1} is no class; number the classes "
            "0..C-1, with -1 for the nodes that have none"
        )
    classes = np.unique(flat[is_class])
    if every_class and (classes.size < 2 or classes[-1] >= classes.size):
        raise DataError(
            f"{where}: labels are {classes.size} classes up to {classes[-1]}; number two or "
            "more of them 0..C-1 without a gap"
        )
    return torch.from_numpy(flat.astype(np.int64))


def _splits(splits: Mapping[str, object], n: int, where: str | Path) -> dict[str, Tensor]:
    parts = {name: node_numbers(ids, n, f"{where}: index_{name}") for name, ids in splits.items()}
    tests = [name for name in parts if name.startswith("test")]
    for a, b in (("train", "val"), *product(("train", "val"), tests)):
        if (
            a in parts
            and b in parts
            and (common := parts[a][torch.isin(parts[a], parts[b])]).numel()
        ):
            raise DataError(
                f"{where}: node {common[0]} is in both index_{a} and index_{b}; they must be "
                "disjoint"
            )
    return parts


NAMES = ("{}_mask", "{}_idx", "index_{}", "idx_{}")
"""Names for the nodes of a part of a split."""

SPLIT_NAMES = tuple(pattern.format(part) for part in SPLITS for pattern in NAMES)

WEIGHTS = ("edge_weight", "edge_attr", "weight")
"""Names of edge weights in PyTorch Geometric, in its GDC, and in networkx."""


def checked_graph(data: Data, splits: Mapping[str, Int[Tensor, "_"]]) -> Data:
    """Check a `Data` and return its graph as `build_graph` does; `data` is not modified.

    Edges are sorted by source, or by target if those of `data` are, as PyTorch Geometric's sorted
    aggregations require.

    Self-loops and duplicate edges are dropped, each with a warning. Nodes outside of `splits` may
    have the label -1, and classes may be empty.
    """
    if not isinstance(data, Data):
        raise DataError(
            f"data: is a {type(data).__name__}; give a torch_geometric.data.Data, such as "
            "dataset[0]"
        )
    features, labels = _array(data, "x"), _array(data, "y")
    num_nodes = features.shape[0] if features.ndim else 0
    adjacency = _adjacency(data, num_nodes)
    graph = build_graph(adjacency, features, labels, splits, where="data", every_class=False)
    assert data.edge_index is not None
    assert graph.edge_index is not None
    if (data.edge_index.diff() < 0).any(1).tolist() == [True, False]:
        graph.edge_index = graph.edge_index.flip(0)  # valid, since every edge has its reverse
    return graph


def split_of(
    held: Mapping[str, Any], num_nodes: int, *, where: str = "data."
) -> dict[str, Int[Tensor, "_"]]:
    """Return node numbers of each part of a graph's split, given by masks or indices.

    The result is empty if nothing looks like a split. Messages start with `where` and a name.
    """
    parts = [part for part in SPLITS if _names(held, part)]
    if parts:
        parts += [part for part in ("train", "val", "test") if part not in parts]
    elif odd := [key for key in held if re.search("train|split", key)]:
        raise DataError(
            f"{where}{odd[0]}: is not read as a split; name its parts train_mask, val_mask and "
            "test_mask, or drop it"
        )
    return {part: _part(held, part, num_nodes, where) for part in parts}


def log_unread(held: Mapping[str, Any], read: Collection[str], *, where: str) -> None:
    """Warn of arrays that are not read."""
    known = {*read, *SPLIT_NAMES}
    arrays = [k for k, v in held.items() if isinstance(v, Tensor | np.ndarray) and k not in known]
    if arrays:
        log.warning("%s: not read: %s", where, ", ".join(arrays))


def node_index(data: Data, nodes: object, name: str = "targets") -> Int[Tensor, "_"]:
    """Return the sorted numbers of nodes.

    `nodes` is `all`; the name of a part, such as `test` for `test_mask`, `test_idx`, `index_test`
    or `idx_test`; a boolean mask; or node numbers. Messages start with `name`.
    """
    n = data.num_nodes or 0
    if isinstance(nodes, str):
        return torch.arange(n) if nodes == "all" else _part(data.to_dict(), nodes, n, "data.")
    return node_numbers(nodes, n, name)


def _part(held: Mapping[str, Any], part: str, n: int, where: str) -> Int[Tensor, "_"]:
    names = _names(held, part)
    if not names:
        name, *further = (pattern.format(part) for pattern in NAMES)
        raise DataError(f"{where}{name}: missing, as are {', '.join(further)}; add one of them")
    first, *others = (node_numbers(held[name], n, f"{where}{name}") for name in names)
    for name, other in zip(names[1:], others, strict=True):
        if not torch.equal(first, other):
            raise DataError(f"{where}{name}: names other nodes than {names[0]}; keep one of them")
    return first


def _names(held: Mapping[str, Any], part: str) -> list[str]:
    names = (pattern.format(part) for pattern in NAMES)
    return [name for name in names if held.get(name) is not None]


def _array(data: Data, key: str) -> NDArray[np.generic]:
    value = getattr(data, key, None)
    if value is None:
        raise DataError(f"data.{key}: missing; a graph needs x, edge_index and y, and no adj_t")
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        kind = value.layout if isinstance(value, Tensor) else f"a {type(value).__name__}"
        remedy = "use to_dense() or torch.as_tensor()"
        raise DataError(f"data.{key}: expected a dense tensor, got {kind}; {remedy}")
    half = value.dtype in (torch.float16, torch.bfloat16)
    array: NDArray[np.generic] = (value.float() if half else value).detach().cpu().numpy()
    return array


def _adjacency(data: Data, num_nodes: int) -> sp.csr_array:
    edges = _array(data, "edge_index")
    check_edge_index(edges, num_nodes, where="data")
    num_edges = edges.shape[1]
    shapes = {k: (v, v.shape) for k, v in data.to_dict().items() if hasattr(v, "shape")}
    # Weights for another number of edges are left over from before the edges were changed.
    per_edge = {k: v for k, (v, s) in shapes.items() if s[:1] == (num_edges,) or k in WEIGHTS}
    for key in [key for key in WEIGHTS if key in per_edge]:
        one_each = per_edge[key].shape in ((num_edges,), (num_edges, 1))
        if one_each and bool((per_edge.pop(key) != 1).any()):
            raise DataError(
                f"data.{key}: holds weights other than 1, which no attack handles; drop it "
                f"(del data.{key}) if the model does without"
            )
    log_unread(per_edge, ("x", "y", "edge_index"), where="data")
    row, col = edges.astype(np.int64)
    shape = (num_nodes, num_nodes)
    adjacency = sp.csr_array((np.ones(row.size, dtype=bool), (row, col)), shape=shape)
    if adjacency.nnz < row.size:
        message = "data: edge_index lists %d edges more than once; each counts once"
        log.warning(message, row.size - adjacency.nnz)
    if one_way := (adjacency != adjacency.T).nnz // 2:
        raise DataError(
            f"data.edge_index: is directed, {one_way} edges lack their reverse; use "
            "torch_geometric.utils.to_undirected(data.edge_index)"
        )
    return adjacency


class Served(ABC):
    """Base of `GraphDataModule` without Lightning, whose import takes a second.

    Attributes:
        name: Name of the dataset.
    """

    name: str

    @property
    @abstractmethod
    def graph(self) -> Data:
        """The whole graph, features normalised."""

    @property
    @abstractmethod
    def target_nodes(self) -> Int[Tensor, " t"]:
        """Test nodes that are scored, and attacked."""
