"""Graphs of benchmarks: npz files, and the Planetoid citation graphs in their own format."""

import json
from collections.abc import Sequence
from itertools import chain

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from torch_geometric.data import Data

from robust_diffusion.checks import Natural, validated
from robust_diffusion.data.download import DatasetFolder
from robust_diffusion.data.files import dense, pick, read_npz, reading, sparse_matrix
from robust_diffusion.data.pickles import read_pickle
from robust_diffusion.data.sources.custom import load_grb, read_graph
from robust_diffusion.data.split import split_by_degree
from robust_diffusion.data.validate import build_graph, check_edge_index
from robust_diffusion.errors import ConfigError, DataError

_PARTS = ("train", "val", "test")

DEFENSE_TEST = "unit_test.npz"
"""File of graphs, splits and perturbations; its keys are paths."""


def load_shchur(folder: DatasetFolder, *, split_seed: int = 0) -> Data:
    """Read one npz file of CSR adjacency, CSR features and labels, and split by degree.

    The edges are directed as stored, and symmetrised. Features stay as stored. For Coauthor these
    are word counts; PyG's loader turns them into 0 and 1, which gives another feature range than
    the published one.

    Reference: Shchur et al. 2018, arXiv:1811.05868.
    """
    (name,) = folder.names
    path = folder.file(name)
    adjacency, features, labels, _ = read_graph(path)
    graph = build_graph(adjacency, features, labels, {}, where=path, plain_edges=False)
    return split_by_degree(graph, split_seed, where=path)


def load_prognn(folder: DatasetFolder, name: str) -> Data:
    """Read `<name>.npz`, a largest connected component, and the split of Pro-GNN.

    `<name>.npz` holds CSR adjacency, CSR features and labels; `<name>_prognn_splits.json` the node
    numbers idx_train, idx_val and idx_test. All files of the folder are verified, including those
    of the poisoned graphs, which `GivenGraph` reads.

    Reference: Jin et al. 2020, arXiv:2005.10203; components and poisoned graphs from Zügner and
    Günnemann 2019, arXiv:1902.08412.
    """
    paths = {file: folder.file(file) for file in folder.names}
    path, split_path = paths[f"{name}.npz"], paths[f"{name}_prognn_splits.json"]
    adjacency, features, labels, _ = read_graph(path)
    with reading(split_path):
        indices = json.loads(split_path.read_text(encoding="utf-8"))
        splits = {part: indices[f"idx_{part}"] for part in _PARTS}
    return build_graph(adjacency, features, labels, splits, where=path)


@validated("dataset.source")
def load_heterophilous(folder: DatasetFolder, name: str, *, split: Natural = 0) -> Data:
    """Read `<name>.npz`: node_features, node_labels, edges and masks of ten splits.

    Reference: Platonov et al. 2023, arXiv:2302.11640, who removed near duplicates from chameleon
    and squirrel; actor and texas from Pei et al. 2020, arXiv:2002.05287.

    Args:
        folder: Folder with the file.
        name: Name of the file, without suffix.
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
    return build_graph(adjacency, features, labels, splits, where=path, plain_edges=False)


@validated("dataset.source")
def load_defense_test(folder: DatasetFolder, name: str, *, split: Natural = 0) -> Data:
    """Read a graph of `unit_test.npz` with one of its five splits.

    Under the name of the graph, the file has `dataset/adjacency`, e x 2, with each edge once;
    `dataset/features`, the positions of the ones; `dataset/labels`; and node numbers
    `splits/<split>/train`, `val` and `test` (10, 10 and 80 %). `unit_test` reads its perturbations.

    Reference: Mujkanovic et al. 2022, arXiv:2301.13694.

    Args:
        folder: Folder with the file.
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
            sparse_matrix("coo", np.ones(len(row), np.int8), row, col, (len(labels), n), where=path)
            for (row, col), n in ((edges.T, shape[0]), (ones.T, shape[1]))
        )
    splits = dict(zip(_PARTS, parts, strict=True))
    x = dense(features, path)
    return build_graph(adjacency, x, labels, splits, where=path, plain_edges=False)


PARTS = ("tx", "allx", "ty", "ally", "graph", "test.index")


def load_planetoid(folder: DatasetFolder, name: str, *, split_seed: int = 0) -> Data:
    """Read `ind.<name>.{tx,allx,ty,ally,graph,test.index}` and split by degree.

    PyG's loader reads the same files, but executes code that their pickles name; here, only arrays
    are admitted.

    Reference: Yang et al. 2016, arXiv:1603.08861; "we use [...] PubMed", arXiv:2209.07754.
    """
    features, labels, adjacency = _read_planetoid(folder, name)
    where = folder.folder
    # The files list some edges twice and some nodes as their own neighbours; the graph that the
    # field uses has neither.
    graph = build_graph(adjacency, features, labels, {}, where=where, plain_edges=False)
    return split_by_degree(graph, split_seed, where=where)


def load_grb_words(
    folder: DatasetFolder,
    words: DatasetFolder,
    name: str,
    omitted: Sequence[int],
    *,
    split_seed: int | None = None,
) -> Data:
    """Read a graph of GRB whose features are the words of the same papers in Planetoid.

    GRB's Citeseer has Planetoid's nodes in Planetoid's order, without `omitted`. Its `adj.npz`,
    `labels.npz` and `index.npz` are public, its `features.npz` is not.

    Reference: Zheng et al. 2021, arXiv:2111.04314; Yang et al. 2016, arXiv:1603.08861.

    Args:
        folder: Folder with GRB's files.
        words: Folder with the files of `load_planetoid`.
        name: Name of Planetoid's graph.
        omitted: Planetoid's nodes that are not in GRB's graph.
        split_seed: As in `load_grb`.

    Raises:
        DataError: The labels of the two graphs differ, so their nodes are not the same papers.
    """
    features, labels, _ = _read_planetoid(words, name)
    kept = np.setdiff1d(np.arange(len(labels)), omitted)
    graph = load_grb(folder, split_seed=split_seed, features=features[kept])
    if differ := int((graph.y.numpy() != labels[kept]).sum()):
        raise DataError(
            f"{folder.folder}: the labels of {differ} nodes differ from those in {words.folder}; "
            f"correct dataset.source.omitted"
        )
    return graph


def _read_planetoid(
    folder: DatasetFolder, name: str
) -> tuple[NDArray[np.float32], NDArray[np.int64], sp.coo_array]:
    """Return features, labels and adjacency of each node, in Planetoid's order.

    Test rows are in the order of test.index. Some nodes of Citeseer are in no file; as in other
    loaders, they get zero features and class 0.
    """
    paths = {part: folder.file(f"ind.{name}.{part}") for part in PARTS}
    tx, allx, ty, ally, neighbours = (read_pickle(paths[part]) for part in PARTS[:-1])
    with reading(paths["test.index"]):
        test_index = np.loadtxt(paths["test.index"], dtype=np.uint64).astype(np.int64)
    with reading(folder.folder):
        known, n = len(ally), int(test_index.max()) + 1
        features = np.zeros((n, allx.shape[1]), dtype=np.float32)
        labels = np.zeros((n, ally.shape[1]))
        features[:known], features[test_index] = allx.toarray(), tx.toarray()
        labels[:known], labels[test_index] = ally, ty
        row = np.repeat([*neighbours], [*map(len, neighbours.values())])
        col = np.array([*chain.from_iterable(neighbours.values())])
        adjacency = sp.coo_array((np.ones(col.size), (row, col)), shape=(n, n))
    return features, labels.argmax(1), adjacency
