import logging
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from robust_diffusion.data.validate import SPLITS, build_graph
from robust_diffusion.errors import DataError
from tests.data.files import EDGES, NUM_NODES, raw_graph, splits, symmetric

WHERE = "somewhere/grb-bad"
N = NUM_NODES


def at(array: np.ndarray, position: Any, value: Any) -> np.ndarray:
    """A copy with one entry replaced."""
    changed = array.copy()
    changed[position] = value
    return changed


def features(position: tuple[int, int], value: float) -> dict[str, Any]:
    return {"features": at(raw_graph()["features"], position, value)}


def labels(value: Any) -> dict[str, Any]:
    return {"labels": at(raw_graph()["labels"].astype(type(value)), 6, value)}


def test_good_arrays_give_exactly_the_graph(caplog: pytest.LogCaptureFixture) -> None:
    raw = raw_graph()
    graph = build_graph(**raw, where=WHERE)
    both = sorted(EDGES + [(v, u) for u, v in EDGES])
    assert graph.edge_index.dtype == torch.int64
    assert graph.edge_index.T.tolist() == [list(edge) for edge in both]
    assert graph.x.dtype == torch.float32
    assert torch.equal(graph.x, torch.from_numpy(raw["features"]).float())
    assert graph.y.dtype == torch.int64
    assert graph.y.tolist() == raw["labels"].tolist()
    assert graph.num_classes == 4
    assert graph.is_undirected()
    assert graph.is_coalesced()
    for name in SPLITS:
        assert graph[f"index_{name}"].dtype == torch.int64
        assert graph[f"index_{name}"].tolist() == raw["splits"][name].tolist()
    assert not caplog.records


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"labels": np.arange(N)[:, None] % 4}, id="labels in a column"),
        pytest.param({"labels": np.arange(N) % 4 * 1.0}, id="labels as floats"),
        pytest.param({"labels": (np.arange(N) % 4).astype(np.uint8)}, id="labels as bytes"),
        pytest.param({"splits": splits(train=np.arange(8)[::-1])}, id="split not sorted"),
        pytest.param({"splits": splits(val=np.arange(8, 11, dtype=np.int32))}, id="int32 split"),
        pytest.param({"adjacency": symmetric(EDGES).tocoo()}, id="adjacency as coo"),
        pytest.param({"adjacency": symmetric(EDGES).astype(bool)}, id="adjacency of booleans"),
    ],
)
def test_other_ways_to_write_the_same_graph(changes: dict[str, Any]) -> None:
    expected = build_graph(**raw_graph(), where=WHERE)
    graph = build_graph(**raw_graph(**changes), where=WHERE)
    for key in ("edge_index", "y", *(f"index_{name}" for name in SPLITS)):
        assert torch.equal(graph[key], expected[key]), key
        assert graph[key].dtype == torch.int64


def test_stored_zeros_and_repeated_entries_are_no_edges(caplog: pytest.LogCaptureFixture) -> None:
    row, col = np.array([0, 1, 0, 1, 2, 3]), np.array([1, 0, 1, 0, 3, 2])
    weight = np.array([1, 1, 1, 1, 0, 0])
    adjacency = sp.coo_matrix((weight, (row, col)), shape=(N, N))
    graph = build_graph(**raw_graph(adjacency=adjacency), where=WHERE)
    assert graph.edge_index.tolist() == [[0, 1], [1, 0]]
    assert not caplog.records


def test_a_graph_without_edges_is_a_graph() -> None:
    graph = build_graph(**raw_graph(adjacency=sp.csr_array((N, N))), where=WHERE)
    assert graph.edge_index.shape == (2, 0)


@pytest.mark.parametrize(
    ("adjacency", "words"),
    [
        pytest.param(
            sp.csr_array(sp.triu(symmetric(EDGES))),
            f"not symmetric, {len(EDGES)} edges lack their reverse",
            id="asymmetric",
        ),
        pytest.param(
            (symmetric(EDGES) + sp.diags_array(1.0 * (np.arange(N) < 3))).tocsr(),
            "3 self-loops; dropped",
            id="self-loops",
        ),
        pytest.param(symmetric(EDGES) * 0.5, "weights other than 1", id="weights"),
    ],
)
def test_minor_faults_are_mended_with_a_warning(
    adjacency: sp.csr_array, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = build_graph(**raw_graph(), where=WHERE)
    with caplog.at_level(logging.WARNING):
        graph = build_graph(**raw_graph(adjacency=adjacency), where=WHERE)
    assert torch.equal(graph.edge_index, expected.edge_index)
    assert len(caplog.records) == 1
    assert WHERE in caplog.text
    assert words in caplog.text


BAD = {
    "adjacency not square": ({"adjacency": sp.csr_array((N, N + 1))}, "(20, 21)"),
    "adjacency a vector": ({"adjacency": sp.coo_array(np.ones(N))}, "(20,)"),
    "adjacency empty": ({"adjacency": sp.coo_array((0, 0))}, "no nodes"),
    "adjacency NaN": ({"adjacency": symmetric(EDGES) * np.nan}, "NaN"),
    "adjacency infinite": ({"adjacency": symmetric(EDGES) * np.inf}, "infinite"),
    "features NaN": (features((7, 2), np.nan), "(nan) at node 7, column 2"),
    "features infinite": (features((0, 1), -np.inf), "(-inf) at node 0, column 1"),
    "features beyond float32": (features((4, 0), 1e39), "(1e+39) at node 4, column 0"),
    "features one row short": ({"features": np.eye(N - 1)}, "(19, 19)"),
    "features one row more": ({"features": np.eye(N + 1)}, "(21, 21)"),
    "features flat": ({"features": np.ones(N)}, "(20,)"),
    "features none": ({"features": np.ones((N, 0))}, "(20, 0)"),
    "features text": ({"features": np.full((N, 2), "a")}, "<U1"),
    "features objects": ({"features": np.full((N, 2), None)}, "object"),
    "features complex": ({"features": np.full((N, 2), 1j)}, "complex128"),
    "labels negative": (labels(-2), "label -2"),
    "labels with a gap": (labels(5), "label 5"),
    "labels huge": (labels(2**40), f"label {2**40}"),
    "labels fractional": (labels(1.5), "label 1.5"),
    "labels NaN": (labels(np.nan), "label nan"),
    "labels infinite": (labels(np.inf), "label inf"),
    "labels of one class": ({"labels": np.zeros(N)}, "labels are all 0"),
    "labels text": ({"labels": np.full(N, "b")}, "<U1"),
    "labels one short": ({"labels": np.zeros(N - 1, int)}, "(19,)"),
    "labels one-hot": ({"labels": np.eye(N, dtype=int)}, "(20, 20)"),
    "index beyond the graph": ({"splits": splits(test=np.arange(11, 21))}, "node 20"),
    "index negative": ({"splits": splits(val=np.array([8, -1]))}, "node -1"),
    "index twice": ({"splits": splits(train=np.array([0, 3, 3]))}, "node 3 twice"),
    "index empty": ({"splits": splits(test_hard=np.array([], int))}, "(0,)"),
    "index fractional": ({"splits": splits(train=np.array([0.5]))}, "float64"),
    "index a mask": ({"splits": splits(train=np.arange(N) < 8)}, "bool"),
    "index a column": ({"splits": splits(train=np.arange(8)[:, None])}, "(8, 1)"),
    "train and val": ({"splits": splits(val=np.array([7, 8]))}, "node 7 is in both"),
    "train and test": ({"splits": splits(test=np.array([2, 11]))}, "node 2 is in both"),
    "val and test": ({"splits": splits(test=np.array([9, 11]))}, "node 9 is in both"),
    "train and easy": ({"splits": splits(test_easy=np.array([4, 11]))}, "node 4 is in both"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("changes", "value"), BAD.values(), ids=BAD)
def test_bad_arrays_are_refused_in_one_line(changes: dict[str, Any], value: str) -> None:
    with pytest.raises(DataError) as caught:
        build_graph(**raw_graph(**changes), where=WHERE)
    message = str(caught.value)
    assert message.startswith(f"{WHERE}: ")
    assert value in message
    assert "\n" not in message
