"""Graphs in the file layout of the Graph Robustness Benchmark."""

import scipy.sparse as sp
from torch_geometric.data import Data

from robust_diffusion.data.download import DatasetFolder, LocalFolder
from robust_diffusion.data.files import pick, read_npz, read_sparse
from robust_diffusion.data.validate import SPLITS, build_graph

FILES = ("adj.npz", "features.npz", "labels.npz", "index.npz")


def load_grb(folder: DatasetFolder | LocalFolder) -> Data:
    """Read `adj.npz`, `features.npz`, `labels.npz` and `index.npz`.

    Reference: Zheng et al. 2021, Graph Robustness Benchmark, arXiv:2111.04314.

    Args:
        folder: Where the files are.

    Returns:
        The checked graph with GRB's split, features raw; see `build_graph`.

    Raises:
        DataError: A file is missing, damaged, or does not hold what it should.
    """
    paths = {name: folder.file(name) for name in FILES}
    adjacency: sp.csr_array = read_sparse(paths["adj.npz"])
    features, labels = (
        pick(read_npz(path), ["data"], path)[0]
        for path in (paths["features.npz"], paths["labels.npz"])
    )
    keys = [f"index_{split}" for split in SPLITS]
    index = pick(read_npz(paths["index.npz"]), keys, paths["index.npz"])
    splits = dict(zip(SPLITS, index, strict=True))
    graph = build_graph(adjacency, features, labels, splits, where=folder.folder)
    folder.keep_hashes()
    return graph
