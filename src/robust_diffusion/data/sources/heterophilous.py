"""Heterophilous graphs, whose edges join nodes of different classes, with their ten splits."""

import numpy as np
import scipy.sparse as sp
from torch_geometric.data import Data

from robust_diffusion.checks import Natural, validated
from robust_diffusion.data.download import DatasetFolder
from robust_diffusion.data.files import pick, read_npz
from robust_diffusion.data.validate import build_graph, check_edge_index
from robust_diffusion.errors import ConfigError

_PARTS = ("train", "val", "test")


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
