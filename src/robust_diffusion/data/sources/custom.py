"""A user's own graph."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.data.download import LocalFolder
from robust_diffusion.data.files import (
    NUMBERS,
    TO_WRITE,
    dense,
    pick,
    pick_csr,
    read_torch,
    reading,
)
from robust_diffusion.data.pickles import CONVERT, read_objects
from robust_diffusion.data.sources.grb import FILES, load_grb
from robust_diffusion.data.sources.pyg import log_unread, split_of
from robust_diffusion.data.split import split_by_degree
from robust_diffusion.data.validate import build_graph, check_edge_index
from robust_diffusion.errors import ConfigError, DataError

Arrays = Mapping[str, NDArray[np.generic]]

ALIASES = {"adj_matrix": "adj", "node_attr": "features", "node_label": "labels"}
"""Names of the GraphData collection."""

READ = (
    *("features", "x", "labels", "y", "edge_index", "edge_weight"),
    *("adj_data", "adj_indices", "adj_indptr", "adj_shape"),
)
"""Names of the arrays that are read, those of a split apart."""


def load_custom(path: str | Path | None, *, split_seed: int = 0) -> Data:
    """Read a folder in GRB's layout, or one `.npz` or `.pt` file.

    A file holds `features` (or `x`), n x f; `labels` (or `y`), n; and the edges as `edge_index`,
    2 x e, or as a CSR matrix in `adj_data`, `adj_indices`, `adj_indptr` and `adj_shape`. An entry
    of weight 0, there or in `edge_weight`, e, is no edge. A split is `train_mask`, `val_mask` and
    `test_mask`, or node numbers in `train_idx`, `index_train` or `idx_train` and so on, with or
    without those of `test_easy`, `test_medium` and `test_hard`; without one, nodes are split by
    degree as GRB does. Nodes of label -1 are in no part. Other arrays are named in a warning.
    A `.npz` file of the GraphData collection, whose sparse matrices are pickled (`adj_matrix`,
    `node_attr`, `node_label`), is read as data, too.
    A `.pt` file holds a dictionary of tensors, as `torch.save(data.to_dict(), path)` writes it from
    a PyG `Data`.

    Args:
        path: Folder or file.
        split_seed: Seed of the degree split, if there is no other.

    Raises:
        ConfigError: No path.
        DataError: A file is missing, damaged, or does not hold what it should.
    """
    if path is None:
        raise ConfigError(
            "dataset.source.path=null: name a folder in GRB's layout, a .npz or a .pt file"
        )
    path = Path(str(path))  # a file may be named 3
    if any((path / name).exists() for name in FILES):
        return load_grb(LocalFolder(path), doubles=True)
    readers: dict[str, Callable[[Path], Mapping[str, Any]]]
    readers = {".npz": _read_arrays, ".pt": _read_tensors}
    if path.is_dir() or path.suffix not in readers:
        raise DataError(
            f"{path}: not a folder in GRB's layout, which is {', '.join(FILES)}, nor a .npz or a "
            f".pt file; {CONVERT}"
        )
    held = readers[path.suffix](path)
    arrays = {key: value for key, value in held.items() if isinstance(value, np.ndarray)}
    features, labels = (
        _either(arrays, *names, path) for names in (("features", "x"), ("labels", "y"))
    )
    num_nodes = features.shape[0] if features.ndim else 0
    adjacency = _adjacency(arrays, path, num_nodes=num_nodes)
    splits = split_of(held, num_nodes, where=f"{path}: ")
    log_unread(arrays, READ, where=str(path))
    graph = build_graph(adjacency, features, labels, splits, where=path, doubles=True)
    return graph if splits else split_by_degree(graph, split_seed, where=path)


def _read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of a file; a sparse matrix of objects as the arrays by which others hold it."""
    held: dict[str, Any] = {}
    for key, value in read_objects(path).items():
        name = ALIASES.get(key, key)
        if not isinstance(value, sp.csr_array):
            held[name] = value
        elif name == "adj":
            parts = {"data": value.data, "indices": value.indices, "indptr": value.indptr}
            held |= {f"adj_{part}": array for part, array in parts.items()}
            held["adj_shape"] = np.array(value.shape)
        else:
            held[name] = dense(value, f"{path}: {key}")
    return held


def _read_tensors(path: Path) -> dict[str, Any]:
    stored = read_torch(path)
    if not isinstance(stored, Mapping):
        raise DataError(f"{path}: holds a {type(stored).__name__}, no dictionary; {TO_WRITE}")
    held = {str(key): value for key, value in stored.items()}
    for key, tensor in held.items():
        if isinstance(tensor, Tensor):
            with reading(f"{path}: {key}", "use a dense tensor of float32 or int64"):
                held[key] = tensor.detach().numpy()
    return held


def _either(arrays: Arrays, name: str, alias: str, path: Path) -> NDArray[np.generic]:
    if name in arrays and alias in arrays:
        raise DataError(f"{path}: holds both {name} and {alias}; keep one of them")
    return arrays[alias] if alias in arrays else pick(arrays, [name], path)[0]


def _adjacency(arrays: Arrays, path: Path, *, num_nodes: int) -> sp.csr_array | sp.coo_array:
    if "edge_index" in arrays and "adj_data" in arrays:
        raise DataError(f"{path}: holds both edge_index and adj_data; keep one of them")
    if "adj_data" in arrays:
        return pick_csr(arrays, "adj", path)
    (edges,) = pick(arrays, ["edge_index"], path)
    check_edge_index(edges, num_nodes, where=path)
    weight = arrays.get("edge_weight", np.ones(edges.shape[1]))
    if weight.size != edges.shape[1] or weight.dtype.kind not in NUMBERS:
        raise DataError(
            f"{path}: edge_weight has shape {weight.shape} and type {weight.dtype}; it must be one "
            f"number for each of the {edges.shape[1]} edges"
        )
    return sp.coo_array((weight.reshape(-1), tuple(edges)), shape=(num_nodes, num_nodes))
