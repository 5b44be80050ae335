"""Graphs in the file layout of the Graph Robustness Benchmark."""

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from torch_geometric.data import Data

from robust_diffusion.data.download import DatasetFolder, LocalFolder
from robust_diffusion.data.files import pick, read_npz, read_sparse
from robust_diffusion.data.split import degree_split
from robust_diffusion.data.validate import SPLITS, build_graph, symmetrized

FILES = ("adj.npz", "features.npz", "labels.npz", "index.npz")


def load_grb(
    folder: DatasetFolder | LocalFolder, *, split_seed: int | None = None, doubles: bool = False
) -> Data:
    """Read `adj.npz`, `features.npz`, `labels.npz` and `index.npz`.

    Reference: Zheng et al. 2021, Graph Robustness Benchmark, arXiv:2111.04314.

    Args:
        folder: Where the files are.
        split_seed: Draws a split of GRB's kind; `None` for GRB's own. See `degree_split`.
        doubles: As of `build_graph`; for graphs that nothing has been published of.

    Returns:
        The checked graph with its split, features raw; see `build_graph`.

    Raises:
        DataError: A file is missing, damaged, or does not hold what it should.
        ConfigError: `split_seed` is no whole number of at least 0.
    """
    paths = {name: folder.file(name) for name in FILES}
    adjacency: sp.csr_array = read_sparse(paths["adj.npz"])
    features, labels = (
        pick(read_npz(path), ["data"], path)[0]
        for path in (paths["features.npz"], paths["labels.npz"])
    )
    if split_seed is None:
        keys = [f"index_{split}" for split in SPLITS]
        index = pick(read_npz(paths["index.npz"]), keys, paths["index.npz"])
        splits: Mapping[str, NDArray[np.generic]] = dict(zip(SPLITS, index, strict=True))
    else:
        degree = np.diff(symmetrized(adjacency, where=paths["adj.npz"]).indptr)
        splits = degree_split(degree, split_seed, where=folder.folder)
    graph = build_graph(adjacency, features, labels, splits, where=folder.folder, doubles=doubles)
    folder.keep_hashes()
    return graph
