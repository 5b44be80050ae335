import logging
import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data
from torch_geometric.utils import degree, homophily, is_undirected

from robust_diffusion.data.sources.synthetic import CORA_CLASS_SHARES, citation_like_graph
from robust_diffusion.data.validate import (
    SPLITS,
    WEIGHTS,
    build_graph,
    checked_graph,
    node_index,
    split_of,
)
from robust_diffusion.errors import DataError
from tests.data.files import EDGES, NUM_NODES, raw_graph, splits, symmetric
from tests.drawn import NODES, drawn_data

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
    "index twice": ({"splits": splits(train=np.array([0, 3, 3]))}, "index_train: names node 3"),
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


DATA = drawn_data()
X, Y, ALONG = DATA.x, DATA.y, DATA.edge_index
TEST = DATA.test_mask.nonzero().squeeze(1)


def checked(**changes: Any) -> Data:
    data = drawn_data(**changes)
    return checked_graph(data, split_of(data.to_dict(), NODES))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="as it is"),
        pytest.param({"y": Y.float()}, id="labels as floats"),
        pytest.param({"y": Y[:, None]}, id="labels in a column"),
        pytest.param({"x": X.double()}, id="features in float64"),
        pytest.param({"edge_index": ALONG.int().flip(1)}, id="int32 edges in another order"),
        pytest.param({"edge_index": torch.cat([ALONG, ALONG.flip(0)], 1)}, id="edges twice"),
        pytest.param({"edge_weight": torch.ones(ALONG.size(1))}, id="weights of 1"),
        pytest.param({"weight": torch.ones(ALONG.size(1), 1)}, id="networkx's weights of 1"),
        pytest.param({"edge_attr": torch.rand(ALONG.size(1), 3)}, id="edge features"),
        pytest.param({"test_mask": None, "index_test": TEST.flip(0)}, id="index_test"),
        pytest.param({"test_mask": None, "test_idx": TEST.numpy().astype(">i4")}, id="big endian"),
    ],
)
def test_one_graph_in_many_forms(changes: dict[str, Any]) -> None:
    found = checked(**changes)
    assert all(torch.equal(found[key], DATA[key]) for key in ("x", "y", "edge_index"))
    assert torch.equal(found.index_test, TEST)
    assert is_undirected(found.edge_index)


@pytest.mark.parametrize("row", [0, 1])
def test_sorted_edges_stay_sorted(row: int) -> None:
    edges = ALONG.flip(0) if row else ALONG
    assert torch.equal(checked(edge_index=edges).edge_index, edges)


def test_weights_of_other_edges_are_not_read(caplog: pytest.LogCaptureFixture) -> None:
    checked(edge_weight=torch.rand(ALONG.size(1) // 2))
    assert "not read: edge_weight" in caplog.text


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "x a list": ({"x": X.tolist()}, "data.x: "),
    "y of test -1": ({"y": torch.where(torch.arange(NODES) == TEST[0], -1, Y)}, "of test"),
    "directed": ({"edge_index": ALONG[:, ALONG[0] < ALONG[1]]}, "to_undirected"),
    "edges 1-based": ({"edge_index": ALONG + 1}, "data: edge_index names node 120"),
    **{f"weight {key}": ({key: torch.rand(ALONG.size(1))}, f"data.{key}: ") for key in WEIGHTS},
    "no val": ({"val_mask": None}, "data.val_mask: missing"),
    "ten masks": ({"test_mask": torch.ones(NODES, 10) > 0}, "data.test_mask[:, 0]"),
    "two that differ": ({"test_idx": TEST[1:]}, "data.test_idx: "),
    "overlap": ({"test_mask": DATA.val_mask}, "index_val and index_test"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_graph_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        checked(**changes)


@pytest.mark.parametrize(
    "nodes",
    ["test", DATA.test_mask, DATA.test_mask.tolist(), TEST, TEST.flip(0), TEST.tolist()],
    ids=["name", "mask", "list of booleans", "numbers", "not sorted", "list"],
)
def test_nodes_in_many_forms(nodes: Any) -> None:
    assert torch.equal(node_index(DATA, nodes), TEST)
    assert torch.equal(node_index(DATA, "all"), torch.arange(NODES))


NO_NODES: dict[str, Any] = {
    "unknown name": "tset",
    "none": None,
    "no node": [],
    "beyond": [0, NODES],
    "twice": [1, 1],
    "floats": [0.5],
    "short mask": DATA.test_mask[1:],
}


@pytest.mark.parametrize("nodes", NO_NODES.values(), ids=NO_NODES)
def test_what_names_no_nodes_is_refused(nodes: Any) -> None:
    with pytest.raises(DataError, match=r"^targets: |^data\.tset_mask: "):
        node_index(DATA, nodes)


def test_the_drawn_graph_is_about_like_cora() -> None:
    graph = citation_like_graph()
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (2680, 302, 7)
    assert graph.num_edges / 2 == pytest.approx(5148, rel=0.05)
    assert homophily(graph.edge_index, graph.y, method="edge") == pytest.approx(0.81, abs=0.02)
    shares = graph.y.bincount() / graph.num_nodes
    assert shares.tolist() == pytest.approx(CORA_CLASS_SHARES, abs=0.002)
    assert graph.is_undirected()
    assert graph.is_coalesced()
    assert not graph.has_self_loops()
    degrees = degree(graph.edge_index[0], graph.num_nodes)
    assert degrees.max() > 8 * degrees.mean()  # a heavy tail
    assert degrees.median() < degrees.mean()
    assert [graph[f"index_{name}"].numel() for name in SPLITS] == [1608, 268, 804, 268, 268, 268]
