"""Custom graphs, as a single file or in the file layout of the Graph Robustness Benchmark."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.data.download import DatasetFolder, LocalFolder
from robust_diffusion.data.files import (
    NUMBERS,
    TO_WRITE,
    dense,
    pick,
    pick_csr,
    read_npz,
    read_sparse,
    read_torch,
    reading,
)
from robust_diffusion.data.split import split_by_degree
from robust_diffusion.data.validate import (
    SPLITS,
    build_graph,
    check_edge_index,
    log_unread,
    split_of,
)
from robust_diffusion.errors import ConfigError, DataError

FILES = ("adj.npz", "features.npz", "labels.npz", "index.npz")


def load_grb(
    folder: DatasetFolder,
    *,
    split_seed: int | None = None,
    features: NDArray[np.generic] | None = None,
) -> Data:
    """Read `adj.npz`, `features.npz`, `labels.npz` and `index.npz`.

    The split may lack `test_easy`, `test_medium` and `test_hard`.

    Reference: Zheng et al. 2021, Graph Robustness Benchmark, arXiv:2111.04314.

    Args:
        folder: Folder with the files.
        split_seed: Seed of a split drawn as in GRB, see `degree_split`; `None` for the split in
            the files.
        features: n x f array in place of `features.npz`, which is not read then.
    """
    names = [name for name in FILES if features is None or name != "features.npz"]
    paths = {name: folder.file(name) for name in names}
    adjacency: sp.csr_array = read_sparse(paths["adj.npz"])
    labels = pick(read_npz(paths["labels.npz"]), ["data"], paths["labels.npz"])[0]
    if features is None:
        features = pick(read_npz(paths["features.npz"]), ["data"], paths["features.npz"])[0]
    splits: dict[str, NDArray[np.generic]] = {}
    if split_seed is None:
        index, required = read_npz(paths["index.npz"]), ("train", "val", "test")
        pick(index, (f"index_{split}" for split in required), paths["index.npz"])
        splits = {split: index[key] for split in SPLITS if (key := f"index_{split}") in index}
    graph = build_graph(adjacency, features, labels, splits, where=folder.folder)
    if split_seed is not None:
        split_by_degree(graph, split_seed, where=folder.folder)
    return graph


Arrays = Mapping[str, Any]

_FEATURES = ("features", "x", "node_attr", "attr_matrix", "attr_data")
LABELS = ("labels", "y", "node_label")
_EDGES = ("edge_index", "adj", "adj_matrix", "adj_data")
_READ = (
    *(*_FEATURES, *LABELS, *_EDGES, "edge_weight"),
    *(f"{kind}_{part}" for kind in ("adj", "attr") for part in ("indices", "indptr", "shape")),
)
"""Names of the arrays that are read, except for those of a split."""


def load_custom(path: str | Path | None, *, split_seed: int = 0) -> Data:
    """Read a folder in GRB's layout, or one `.npz` or `.pt` file.

    A file has these arrays:

    - `features` or `x`, n x f; `labels` or `y`, n; and `edge_index`, 2 x e.
    - Features and edges may be CSR matrices instead: `attr_data`, `attr_indices`, `attr_indptr`,
      `attr_shape`, and `adj_data` and so on. Entries of weight 0, there or in `edge_weight`, are
      not edges.
    - An optional split: `train_mask`, `val_mask` and `test_mask`, or node numbers in `train_idx`,
      `index_train` or `idx_train` and so on, optionally also of `test_easy`, `test_medium` and
      `test_hard`. Without a split, nodes are split by degree as in GRB. Nodes with label -1 are in
      no part.

    Other arrays are listed in a warning, and never unpickled. A `.pt` file contains a dictionary of
    tensors, as written by `torch.save(data.to_dict(), path)` from a PyG `Data`.

    Args:
        path: Folder or file.
        split_seed: Seed of the split by degree, if the file has no split.

    Raises:
        ConfigError: `path` is `None`.
        DataError: A file is missing, damaged, or has other contents.
    """
    if path is None:
        raise ConfigError(
            "dataset.source.path=null: name a folder in GRB's layout, a .npz or a .pt file"
        )
    path = Path(str(path))  # Hydra reads a file name such as 3 as a number
    if any((path / name).exists() for name in FILES):
        return load_grb(LocalFolder(path))
    if path.is_dir() or path.suffix not in (".npz", ".pt"):
        raise DataError(
            f"{path}: expected a folder in GRB's layout, which is {', '.join(FILES)}, a .npz or a "
            f".pt file; {TO_WRITE}"
        )
    adjacency, features, labels, members = read_graph(path)
    num_nodes = features.shape[0] if features.ndim else 0
    splits = split_of(members, num_nodes, where=f"{path}: ")
    graph = build_graph(adjacency, features, labels, splits, where=path)
    return graph if splits else split_by_degree(graph, split_seed, where=path)


def read_graph(path: Path) -> tuple[sp.sparray, NDArray[Any], NDArray[Any], Arrays]:
    """Read one `.npz` or `.pt` file as described in `load_custom`.

    Returns:
        Adjacency, dense features, labels, and all contents of the file by name.
    """
    members = _read_tensors(path) if path.suffix == ".pt" else read_npz(path, skip_pickled=True)
    arrays = {key: value for key, value in members.items() if isinstance(value, np.ndarray)}
    if pickled := [key for key in _READ if key in arrays and arrays[key].dtype == object]:
        raise DataError(f"{path}: {pickled[0]} is pickled; save it as plain arrays")
    name = _one_of(_FEATURES, arrays, path, "add features, such as node degrees, n x 1")
    sparse = name == "attr_data"
    features = dense(pick_csr(arrays, "attr", path), path) if sparse else arrays[name]
    labels = arrays[_one_of(LABELS, arrays, path, "add labels, a class number per node")]
    adjacency = _adjacency(arrays, path, num_nodes=features.shape[0] if features.ndim else 0)
    log_unread(arrays, _READ, where=str(path))
    return adjacency, features, labels, members


def _read_tensors(path: Path) -> dict[str, Any]:
    stored = read_torch(path)
    if not isinstance(stored, Mapping):
        raise DataError(f"{path}: holds a {type(stored).__name__}, no dictionary; {TO_WRITE}")
    tensors = {str(key): value for key, value in stored.items()}
    for key, tensor in tensors.items():
        if isinstance(tensor, Tensor):
            with reading(f"{path}: {key}", "use a dense tensor of float32 or int64"):
                tensors[key] = tensor.detach().numpy()
    return tensors


def _one_of(names: Collection[str], arrays: Arrays, path: Path, remedy: str) -> str:
    """Return the only one of some names that a file has."""
    present = [name for name in names if name in arrays]
    if not present:
        if similar := [key for key in arrays if key.lower() in names]:
            remedy = f"rename {similar[0]} to {similar[0].lower()}"
        raise DataError(
            f"{path}: expected an array {' or '.join(names)}, got {', '.join(arrays)}; {remedy}"
        )
    if len(present) > 1:
        raise DataError(f"{path}: holds both {present[0]} and {present[1]}; keep one of them")
    return present[0]


def _adjacency(arrays: Arrays, path: Path, *, num_nodes: int) -> sp.sparray:
    name = _one_of(_EDGES, arrays, path, "add edge_index, 2 x e")
    if name == "adj_data":
        return pick_csr(arrays, "adj", path)
    edges = arrays[name]
    if name != "edge_index":
        with reading(f"{path}: {name}", "use an n x n matrix of numbers"):
            return sp.csr_array(edges)
    check_edge_index(edges, num_nodes, where=path)
    weight = arrays.get("edge_weight", np.ones(edges.shape[1]))
    if weight.size != edges.shape[1] or weight.dtype.kind not in NUMBERS:
        raise DataError(
            f"{path}: edge_weight has shape {weight.shape} and type {weight.dtype}; it must be one "
            f"number for each of the {edges.shape[1]} edges"
        )
    return sp.coo_array((weight.reshape(-1), tuple(edges)), shape=(num_nodes, num_nodes))
