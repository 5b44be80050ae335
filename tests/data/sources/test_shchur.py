from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from torch_geometric.data import Data
from torch_geometric.utils import degree

from robust_diffusion.data import DatasetFolder
from robust_diffusion.data.sources import load_shchur
from robust_diffusion.data.split import degree_split
from tests.data.files import EDGES, NUM_NODES, csr_parts, refusal, shchur_arrays

NAME = "ring.npz"
BOTH = sorted(EDGES + [(v, u) for u, v in EDGES])


def load(folder: Path, **options: Any) -> Data:
    return load_shchur(DatasetFolder(folder, ".", {NAME: {}}), **options)


def test_word_counts_are_kept_and_edges_get_their_reverse(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arrays = shchur_arrays()
    np.savez(tmp_path / NAME, **arrays)
    graph = load(tmp_path, split_seed=5)
    parts = tuple(arrays[f"attr_{part}"] for part in ("data", "indices", "indptr"))
    counts = sp.csr_array(parts, shape=tuple(arrays["attr_shape"])).toarray()
    assert counts.max() > 1
    assert np.array_equal(graph.x.numpy(), counts)
    assert graph.y.tolist() == [node % 4 for node in range(NUM_NODES)]
    assert [tuple(edge) for edge in graph.edge_index.T.tolist()] == BOTH
    assert not caplog.records  # that is how these files are
    degrees = degree(graph.edge_index[0], NUM_NODES).long().numpy()
    for name, index in degree_split(degrees, 5).items():
        assert graph[f"index_{name}"].tolist() == index.tolist()


@pytest.mark.parametrize("weight", [1.0, -1.0, 1e-30, 200.0])
def test_weights_and_self_loops_add_no_edges(tmp_path: Path, weight: float) -> None:
    row, col = np.array([*BOTH, (3, 3), (0, 0)]).T
    matrix = sp.csr_matrix((np.full(row.size, weight), (row, col)), (NUM_NODES, NUM_NODES))
    matrix[EDGES[0]] = -weight
    np.savez(tmp_path / NAME, **shchur_arrays(**csr_parts(matrix, "adj")))
    assert [tuple(edge) for edge in load(tmp_path).edge_index.T.tolist()] == BOTH


BAD: dict[str, tuple[dict[str, Any], str]] = {
    **{f"no {key}": ({key: None}, f"array {key}") for key in shchur_arrays()},
    "adjacency of words": ({"adj_data": np.full(len(EDGES), "1")}, "type <U1"),
    "adjacency beyond": ({"adj_indices": np.full(len(EDGES), 20)}, "cannot be read"),
    "adjacency fractional": ({"adj_indices": np.full(len(EDGES), 0.5)}, "type float64"),
    "features too wide": ({"attr_shape": np.array([NUM_NODES, 2**60])}, "cannot be read"),
    "features NaN": ({"attr_data": shchur_arrays()["attr_data"] * np.nan}, "features"),
    "labels one short": ({"labels": np.zeros(NUM_NODES - 1, int)}, "labels"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("changes", "key"), BAD.values(), ids=BAD)
def test_bad_parts_are_refused(tmp_path: Path, changes: dict[str, Any], key: str) -> None:
    held = {k: array for k, array in shchur_arrays(**changes).items() if array is not None}
    np.savez(tmp_path / NAME, **held)
    assert key in refusal(load, tmp_path)
