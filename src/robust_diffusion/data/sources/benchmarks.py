"""Graphs of benchmarks that lie in one npz file each."""

import json

import numpy as np
import scipy.sparse as sp
from torch_geometric.data import Data

from robust_diffusion.checks import Natural, validated
from robust_diffusion.data.download import DatasetFolder
from robust_diffusion.data.files import dense, pick, read_npz, reading, sparse_matrix
from robust_diffusion.data.sources.custom import read_graph
from robust_diffusion.data.split import split_by_degree
from robust_diffusion.data.validate import build_graph, check_edge_index
from robust_diffusion.errors import ConfigError

_PARTS = ("train", "val", "test")

DEFENSE_TEST = "unit_test.npz"
"""File of graphs, splits and perturbations; its keys are paths."""


def load_shchur(folder: DatasetFolder, *, split_seed: int = 0) -> Data:
    """Read one npz file of CSR adjacency, CSR features and labels, and split by degree.

    The edges are directed as stored, and symmetrised. Features stay as they are stored, which
    for Coauthor is word counts: PyG's loader turns them into 0 and 1, which gives another
    feature range than the published one.

    Reference: Shchur et al. 2018, arXiv:1811.05868.
    """
    (name,) = folder.names
    path = folder.file(name)
    adjacency, features, labels, _ = read_graph(path)
    graph = build_graph(adjacency, features, labels, {}, where=path, plain_edges=False)
    split_by_degree(graph, split_seed, where=path)
    folder.keep_hashes()
    return graph


def load_prognn(folder: DatasetFolder, name: str) -> Data:
    """Read `<name>.npz`, a largest connected component, and the split of Pro-GNN.

    `<name>.npz` holds CSR adjacency, CSR features and labels; `<name>_prognn_splits.json` the node
    numbers idx_train, idx_val and idx_test. All files of the folder are verified, those of the
    poisoned graphs too, which `GivenGraph` reads.

    Reference: Jin et al. 2020, arXiv:2005.10203; components and poisoned graphs as of Zügner and
    Günnemann 2019, arXiv:1902.08412.
    """
    paths = {file: folder.file(file) for file in folder.names}
    path, split_path = paths[f"{name}.npz"], paths[f"{name}_prognn_splits.json"]
    adjacency, features, labels, _ = read_graph(path)
    with reading(split_path):
        held = json.loads(split_path.read_text(encoding="utf-8"))
        splits = {part: held[f"idx_{part}"] for part in _PARTS}
    graph = build_graph(adjacency, features, labels, splits, where=path)
    folder.keep_hashes()
    return graph


@validated("dataset.source")
def load_heterophilous(folder: DatasetFolder, name: str, *, split: Natural = 0) -> Data:
    """Read `<name>.npz`: node_features, node_labels, edges and masks of ten splits.

    Reference: Platonov et al. 2023, arXiv:2302.11640, who took near duplicates out of chameleon and
    squirrel; actor and texas as of Pei et al. 2020, arXiv:2002.05287.

    Args:
        folder: Has the file.
        name: Of the file.
        split: Number of the split, in 0..9.
    """
    path = folder.file(f"{name}.npz")
    keys = ["node_features", "node_labels", "edges", *(f"{part}_masks" for part in _PARTS)]
    features, labels, edges, *masks = pick(read_npz(path), keys, path)
    n = len(features)
    check_edge_index(edges.T, n, where=path)
    if any(mask.ndim != 2 or not split < len(mask) for mask in masks):
        raise ConfigError(
            f"dataset.source.split={split}: {path} has the splits 0..{len(masks[0]) - 1}"
        )
    adjacency = sp.coo_array((np.ones(len(edges), np.int8), tuple(edges.T)), shape=(n, n))
    splits = {part: mask[split] for part, mask in zip(_PARTS, masks, strict=True)}
    graph = build_graph(adjacency, features, labels, splits, where=path, plain_edges=False)
    folder.keep_hashes()
    return graph


@validated("dataset.source")
def load_defense_test(folder: DatasetFolder, name: str, *, split: Natural = 0) -> Data:
    """Read a graph of `unit_test.npz` with one of its five splits.

    Below the name of the graph, the file holds `dataset/adjacency`, e x 2, each edge once;
    `dataset/features`, the places of the ones; `dataset/labels`; and node numbers,
    `splits/<split>/train`, `val` and `test`, 10, 10 and 80 %. Its perturbations are read by
    `unit_test`.

    Reference: Mujkanovic et al. 2022, arXiv:2301.13694.

    Args:
        folder: Has the file.
        name: `cora_ml` or `citeseer`.
        split: Number of the split, in 0..4.
    """
    path = folder.file(DEFENSE_TEST)
    arrays = read_npz(path)
    keys = (f"{name}/dataset/{part}" for part in ("adjacency", "features", "labels"))
    edges, ones, labels = pick(arrays, keys, path)
    known = sorted({key.split("/")[2] for key in arrays if key.startswith(f"{name}/splits/")})
    if str(split) not in known:
        raise ConfigError(f"dataset.source.split={split}: {path} has the splits {', '.join(known)}")
    parts = pick(arrays, (f"{name}/splits/{split}/{part}" for part in _PARTS), path)
    with reading(path):
        shape = (len(labels), int(ones[:, 1].max()) + 1)
        adjacency, features = (
            sparse_matrix("coo", np.ones(len(at), np.int8), *at.T, (shape[0], width), where=path)
            for at, width in ((edges, shape[0]), (ones, shape[1]))
        )
    splits = dict(zip(_PARTS, parts, strict=True))
    x = dense(features, path)
    graph = build_graph(adjacency, x, labels, splits, where=path, plain_edges=False)
    folder.keep_hashes()
    return graph
