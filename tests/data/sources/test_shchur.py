from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data
from torch_geometric.utils import degree

from robust_diffusion.data import DatasetFolder
from robust_diffusion.data.sources import load_shchur
from robust_diffusion.data.split import degree_split
from tests.data.files import EDGES, NUM_NODES, csr_parts, shchur_arrays
from tests.data.reading import refusal

NAME = "ring.npz"
BOTH = sorted(EDGES + [(v, u) for u, v in EDGES])


def load(folder: Path, **options: Any) -> Data:
    return load_shchur(DatasetFolder(folder, ".", {NAME: {}}), **options)


def counts() -> np.ndarray:
    arrays = shchur_arrays()
    parts = (arrays[f"attr_{part}"] for part in ("data", "indices", "indptr"))
    return sp.csr_array(tuple(parts), shape=tuple(arrays["attr_shape"])).toarray()


def test_word_counts_are_kept(tmp_path: Path) -> None:
    np.savez(tmp_path / NAME, **shchur_arrays())
    graph = load(tmp_path)
    assert counts().max() > 1
    assert np.array_equal(graph.x.numpy(), counts())
    assert graph.x.dtype == torch.float32
    assert graph.y.tolist() == [node % 4 for node in range(NUM_NODES)]


def test_directed_edges_get_their_reverse(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    np.savez(tmp_path / NAME, **shchur_arrays())
    assert [tuple(edge) for edge in load(tmp_path).edge_index.T.tolist()] == BOTH
    assert not caplog.records  # that is how these files are


@pytest.mark.parametrize("weight", [1.0, -1.0, 0.5, 1e-30, 200.0])
def test_weights_and_self_loops_add_no_edges(tmp_path: Path, weight: float) -> None:
    row, col = np.array([*BOTH, (3, 3), (0, 0)]).T
    matrix = sp.csr_matrix((np.full(row.size, weight), (row, col)), (NUM_NODES, NUM_NODES))
    matrix[EDGES[0]] = -weight
    np.savez(tmp_path / NAME, **shchur_arrays(**csr_parts(matrix, "adj")))
    assert [tuple(edge) for edge in load(tmp_path).edge_index.T.tolist()] == BOTH


def test_is_split_by_degree_with_the_seed(tmp_path: Path) -> None:
    np.savez(tmp_path / NAME, **shchur_arrays())
    graph = load(tmp_path, split_seed=5)
    degrees = degree(graph.edge_index[0], NUM_NODES).long().numpy()
    for name, index in degree_split(degrees, 5).items():
        assert graph[f"index_{name}"].tolist() == index.tolist()


KEYS = sorted(shchur_arrays())


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_array_is_named(tmp_path: Path, key: str) -> None:
    np.savez(tmp_path / NAME, **{k: v for k, v in shchur_arrays().items() if k != key})
    assert f"lacks the array {key}" in refusal(load, tmp_path)


SMALL = sp.csr_matrix((3, 4), dtype=np.float32)
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "adjacency of words": ({"adj_data": np.full(len(EDGES), "1")}, "type <U1"),
    "adjacency complex": ({"adj_data": np.full(len(EDGES), 1j)}, "type complex128"),
    "adjacency beyond": ({"adj_indices": np.full(len(EDGES), 20)}, "cannot be read"),
    "adjacency fractional": ({"adj_indices": np.full(len(EDGES), 0.5)}, "type float64"),
    "adjacency without nodes": (csr_parts(sp.csr_matrix((0, 0)), "adj"), "no nodes"),
    "features one short": (csr_parts(SMALL, "attr"), "(3, 4)"),
    "features too wide": ({"attr_shape": np.array([NUM_NODES, 2**60])}, "cannot be read"),
    "features complex": ({"attr_data": shchur_arrays()["attr_data"] * 1j}, "complex64"),
    "features NaN": ({"attr_data": shchur_arrays()["attr_data"] * np.nan}, "not finite"),
    "labels one short": ({"labels": np.zeros(NUM_NODES - 1, int)}, "(19,)"),
    "too few nodes": (
        csr_parts(SMALL[:, :3], "adj") | csr_parts(SMALL, "attr") | {"labels": np.arange(3)},
        "3 nodes, too few",
    ),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("changes", "words"), BAD.values(), ids=BAD)
def test_bad_parts_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / NAME, **shchur_arrays(**changes))
    assert words in refusal(load, tmp_path)
