"""Coauthor and Amazon graphs in the file layout of Shchur et al."""

from torch_geometric.data import Data

from robust_diffusion.data.download import DatasetFolder
from robust_diffusion.data.sources.custom import read_graph
from robust_diffusion.data.split import split_by_degree
from robust_diffusion.data.validate import build_graph


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
