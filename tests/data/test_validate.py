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


def features(position: tuple[int, int], value: float) -> dict[str, Any]:
    changed = raw_graph()["features"].copy()
    changed[position] = value
    return {"features": changed}


def labels(value: Any) -> dict[str, Any]:
    changed = raw_graph()["labels"].astype(type(value))
    changed[6] = value
    return {"labels": changed}


def test_good_arrays_give_exactly_the_graph(caplog: pytest.LogCaptureFixture) -> None:
    raw = raw_graph()
    graph = build_graph(**raw, where=WHERE)
    both = sorted(EDGES + [(v, u) for u, v in EDGES])
    assert graph.edge_index.T.tolist() == [list(edge) for edge in both]
    assert torch.equal(graph.x, torch.from_numpy(raw["features"]).float())
    assert graph.y.tolist() == raw["labels"].tolist()
    assert graph.num_classes == 4
    assert graph.is_undirected()
    assert graph.is_coalesced()
    for name in SPLITS:
        assert graph[f"index_{name}"].tolist() == raw["splits"][name].tolist()
    assert not caplog.records


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": np.arange(N)[:, None] % 4},
        {"labels": np.arange(N) % 4 * 1.0},
        {"labels": (np.arange(N) % 4).astype(np.uint8)},
        {"splits": splits(train=np.arange(8)[::-1])},
        {"splits": splits(train=np.arange(N) < 8)},
        {"splits": splits(val=np.arange(8, 11, dtype=np.int32))},
        {"adjacency": symmetric(EDGES).tocoo()},
        {"adjacency": symmetric(EDGES).astype(bool)},
    ],
)
def test_other_ways_to_write_the_same_graph(changes: dict[str, Any]) -> None:
    expected = build_graph(**raw_graph(), where=WHERE)
    graph = build_graph(**raw_graph(**changes), where=WHERE)
    for key in ("edge_index", "y", *(f"index_{name}" for name in SPLITS)):
        assert torch.equal(graph[key], expected[key]), key
        assert graph[key].dtype == torch.int64


MENDED = {
    "not symmetric": sp.csr_array(sp.triu(symmetric(EDGES))),
    "self-loops": (symmetric(EDGES) + sp.diags_array(1.0 * (np.arange(N) < 3))).tocsr(),
    "weights": symmetric(EDGES) * 0.5,
}


@pytest.mark.parametrize(("word", "adjacency"), MENDED.items(), ids=MENDED)
@pytest.mark.parametrize("plain", [True, False])
def test_minor_faults_are_mended_with_a_warning_where_they_are_unusual(
    adjacency: sp.csr_array, word: str, plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    expected = build_graph(**raw_graph(), where=WHERE)
    with caplog.at_level(logging.WARNING):
        graph = build_graph(**raw_graph(adjacency=adjacency), where=WHERE, plain_edges=plain)
    assert torch.equal(graph.edge_index, expected.edge_index)
    assert len(caplog.records) == plain
    assert word in caplog.text or not plain


BAD = {
    "adjacency not square": ({"adjacency": sp.csr_array((N, N + 1))}, "adjacency"),
    "features NaN": (features((7, 2), np.nan), "(nan) at node 7, column 2"),
    "features beyond float32": (features((4, 0), 1e39), "(1e+39) at node 4, column 0"),
    "labels negative": (labels(-2), "label -2"),
    "labels with a gap": (labels(5), "labels"),
    "labels fractional": (labels(1.5), "label 1.5"),
    "labels of one class": ({"labels": np.zeros(N)}, "labels"),
    "labels one short": ({"labels": np.zeros(N - 1, int)}, "labels"),
    "index beyond the graph": ({"splits": splits(test=np.arange(11, 21))}, "index_test: names"),
    "index twice": ({"splits": splits(train=np.array([0, 3, 3]))}, "index_train: names node 3"),
    "index empty": ({"splits": splits(test_hard=np.array([], int))}, "index_test_hard"),
    "train and val": ({"splits": splits(val=np.array([7, 8]))}, "index_train and index_val"),
    "train and easy": ({"splits": splits(test_easy=np.array([4, 11]))}, "index_test_easy"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("changes", "key"), BAD.values(), ids=BAD)
def test_bad_arrays_are_refused_in_one_line(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(DataError) as caught:
        build_graph(**raw_graph(**changes), where=WHERE)
    message = str(caught.value)
    assert message.startswith(f"{WHERE}: ")
    assert key in message
    assert "\n" not in message


def test_features_whose_offset_float32_cannot_hold_are_refused() -> None:
    stamps = 1.7e9 + 60.0 * np.arange(NUM_NODES)[:, None]
    with pytest.raises(DataError, match=r"column 0 are [^\n]*subtract their mean"):
        build_graph(**raw_graph(features=stamps), where=WHERE)
    for kept in (stamps - stamps.mean(), stamps.astype(np.float32)):
        build_graph(**raw_graph(features=kept), where=WHERE)
