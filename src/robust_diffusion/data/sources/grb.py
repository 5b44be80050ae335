"""Graphs in the file layout of the Graph Robustness Benchmark."""

import io
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from torch_geometric.data import Data

from robust_diffusion.data.download import DatasetFolder
from robust_diffusion.data.files import pick, read_npz, read_sparse
from robust_diffusion.data.split import split_by_degree
from robust_diffusion.data.validate import SPLITS, build_graph
from robust_diffusion.errors import ConfigError
from robust_diffusion.system.files import write_whole

FILES = ("adj.npz", "features.npz", "labels.npz", "index.npz")


def load_grb(
    folder: DatasetFolder, *, split_seed: int | None = None, doubles: bool = False
) -> Data:
    """Read `adj.npz`, `features.npz`, `labels.npz` and `index.npz`.

    Reference: Zheng et al. 2021, Graph Robustness Benchmark, arXiv:2111.04314.

    Args:
        folder: Where the files are.
        split_seed: Draws a split of GRB's kind, see `degree_split`; `None` for GRB's own.
        doubles: See `build_graph`; only for graphs without published results.
    """
    paths = {name: folder.file(name) for name in FILES}
    adjacency: sp.csr_array = read_sparse(paths["adj.npz"])
    features, labels = (
        pick(read_npz(path), ["data"], path)[0]
        for path in (paths["features.npz"], paths["labels.npz"])
    )
    splits: dict[str, NDArray[np.generic]] = {}
    if split_seed is None:
        keys = [f"index_{split}" for split in SPLITS]
        index = pick(read_npz(paths["index.npz"]), keys, paths["index.npz"])
        splits = dict(zip(SPLITS, index, strict=True))
    graph = build_graph(adjacency, features, labels, splits, where=folder.folder, doubles=doubles)
    if split_seed is not None:
        split_by_degree(graph, split_seed, where=folder.folder)
    folder.keep_hashes()
    return graph


def write_grb(graph: Data, folder: Path, *, overwrite: bool = False) -> None:
    """Write a graph as GRB keeps its datasets: the files that `load_grb` reads.

    In GRB, `Dataset(name="grb-cora", data_dir=folder, feat_norm="arctan")` reads any such folder.

    Args:
        graph: x, y, edge_index and its `index_<split>`; features as they are to be read, so raw.
        folder: Made if need be.
        overwrite: Write over files of these names.
    """
    there = [name for name in FILES if (folder / name).exists()]
    if there and not overwrite:
        raise ConfigError(
            f"folder {folder}: holds {', '.join(there)}; name another one, or give --overwrite"
        )
    assert graph.edge_index is not None
    row, col = graph.edge_index.numpy()
    ones, size = np.ones(row.size, dtype=np.float32), (graph.num_nodes, graph.num_nodes)
    # A matrix and not an array, whose operators have another meaning in GRB's code.
    adjacency = sp.csr_matrix((ones, (row, col)), shape=size)
    index = {key: graph[key].numpy() for key in (f"index_{s}" for s in SPLITS) if key in graph}
    arrays = {"features": {"data": graph.x.numpy()}, "labels": {"data": graph.y.numpy()}}
    content = io.BytesIO()
    sp.save_npz(content, adjacency)
    write_whole(folder / "adj.npz", content.getvalue(), option="folder")
    for name, held in (arrays | {"index": index}).items():
        content = io.BytesIO()
        np.savez_compressed(content, **held)
        write_whole(folder / f"{name}.npz", content.getvalue(), option="folder")
