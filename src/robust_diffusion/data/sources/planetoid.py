"""The Planetoid citation graphs in their original files."""

from collections.abc import Iterable, Sized
from itertools import chain
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from torch_geometric.data import Data

from robust_diffusion.data.download import DatasetFolder
from robust_diffusion.data.files import damaged, dense
from robust_diffusion.data.pickles import read_pickle
from robust_diffusion.data.split import split_by_degree
from robust_diffusion.data.validate import build_graph, symmetrized
from robust_diffusion.errors import DataError

PARTS = ("tx", "allx", "ty", "ally", "graph", "test.index")


def load_planetoid(folder: DatasetFolder, name: str, *, split_seed: int = 0) -> Data:
    """Read `ind.<name>.{tx,allx,ty,ally,graph,test.index}` and split by degree.

    PyG's loader reads the same files, but runs whatever their pickles name; here only arrays are
    admitted.

    Reference: Yang et al. 2016, arXiv:1603.08861; "we use [...] PubMed", arXiv:2209.07754.

    Args:
        folder: Where the files are.
        name: cora, citeseer or pubmed.
        split_seed: Seed of the degree split.

    Returns:
        The checked graph, features raw; see `build_graph`.

    Raises:
        DataError: A file is missing, damaged, or does not fit the others.
    """
    paths = {part: folder.file(f"ind.{name}.{part}") for part in PARTS}
    known_x, test_x = (_features(paths[part]) for part in ("allx", "tx"))
    known_y, test_y = (_one_hot(paths[part]) for part in ("ally", "ty"))
    test_index = _test_index(paths["test.index"])
    where = folder.folder
    first = known_x.shape[0]
    # Test rows come in the order of test.index, from the first node after the known ones; Citeseer
    # names some nodes in no file, which get zero features and, as everywhere, class 0.
    if test_index.min() != first or test_index.size != test_x.shape[0]:
        raise DataError(
            f"{paths['test.index']}: {test_index.size} test nodes from {test_index.min()} do not "
            f"follow {first} known and {test_x.shape[0]} test rows; fetch the files again"
        )
    if known_x.shape[1] != test_x.shape[1] or known_y.shape[1] != test_y.shape[1]:
        raise DataError(f"{where}: known and test nodes differ in width; fetch the files again")
    if known_y.shape[0] != first or test_y.shape[0] != test_index.size:
        raise DataError(f"{where}: features and labels differ in length; fetch the files again")
    n = int(test_index.max()) + 1
    if n - first > 2 * test_index.size:
        raise DataError(
            f"{paths['test.index']}: names node {n - 1}, which leaves most nodes after {first} "
            "without a row; fetch the file again"
        )
    features = np.zeros((n, known_x.shape[1]), dtype=np.float32)
    labels = np.zeros((n, known_y.shape[1]))
    features[:first], labels[:first] = known_x, known_y
    features[test_index], labels[test_index] = test_x, test_y
    adjacency = _adjacency(paths["graph"], n)
    graph = build_graph(adjacency, features, labels.argmax(1), {}, where=where)
    split_by_degree(graph, split_seed, where=where)
    folder.keep_hashes()
    return graph


def _features(path: Path) -> NDArray[np.float32]:
    matrix = read_pickle(path)
    if not isinstance(matrix, sp.csr_array):
        raise DataError(f"{path}: holds no sparse matrix; fetch the file again")
    return dense(matrix, path)


def _one_hot(path: Path) -> NDArray[np.generic]:
    labels = read_pickle(path)
    if (
        not isinstance(labels, np.ndarray)
        or labels.ndim != 2
        or not np.isin(labels, (0, 1)).all()
        or (labels.sum(1) != 1).any()
    ):
        raise DataError(f"{path}: holds no matrix of one-hot labels; fetch the file again")
    return labels


def _test_index(path: Path) -> NDArray[np.int64]:
    try:
        index = np.loadtxt(path, dtype=np.int64, ndmin=1)
    except (ValueError, OSError) as error:
        raise damaged(path, error) from error
    if index.ndim != 1 or index.size == 0 or index.min() < 0 or np.unique(index).size != index.size:
        raise DataError(f"{path}: must list each test node once; fetch the file again")
    return index


def _adjacency(path: Path, n: int) -> sp.csr_array:
    neighbours = read_pickle(path)
    try:
        counts = _counts(neighbours.values(), at_most=path.stat().st_size)
        row = np.repeat(_nodes(neighbours.keys(), n), counts)
        col = _nodes(chain.from_iterable(neighbours.values()), n)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise damaged(path, error) from error
    # The files list some edges twice and some nodes as their own neighbours; the graph that the
    # field uses has neither.
    return symmetrized(sp.coo_array((np.ones(row.size), (row, col)), shape=(n, n)), where=path)


def _counts(lists: Iterable[Sized], *, at_most: int) -> NDArray[np.int64]:
    counts = np.fromiter(map(len, lists), dtype=np.int64)
    if counts.sum() > at_most:
        raise ValueError("it lists one node's neighbours over and over")
    return counts


def _nodes(listed: Iterable[object], n: int) -> NDArray[np.int64]:
    nodes = np.array(list(listed))
    if nodes.size == 0:
        return np.empty(0, dtype=np.int64)
    if nodes.ndim != 1 or nodes.dtype.kind != "i" or nodes.min() < 0 or nodes.max() >= n:
        raise ValueError(f"it names nodes other than 0..{n - 1}")
    return nodes
