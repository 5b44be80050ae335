import re
from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import degree, homophily, is_undirected

from robust_diffusion.data.sources.synthetic import CORA_CLASS_SHARES, citation_like_graph
from robust_diffusion.data.validate import SPLITS, WEIGHTS, checked_graph, node_index, split_of
from robust_diffusion.errors import DataError
from tests.drawn import NODES, drawn_data

DATA = drawn_data()
X, Y, EDGES = DATA.x, DATA.y, DATA.edge_index
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
        pytest.param({"edge_index": EDGES.int().flip(1)}, id="int32 edges in another order"),
        pytest.param({"edge_index": torch.cat([EDGES, EDGES.flip(0)], 1)}, id="edges twice"),
        pytest.param({"edge_weight": torch.ones(EDGES.size(1))}, id="weights of 1"),
        pytest.param({"weight": torch.ones(EDGES.size(1), 1)}, id="networkx's weights of 1"),
        pytest.param({"edge_attr": torch.rand(EDGES.size(1), 3)}, id="edge features"),
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
    edges = EDGES.flip(0) if row else EDGES
    assert torch.equal(checked(edge_index=edges).edge_index, edges)


def test_weights_of_other_edges_are_not_read(caplog: pytest.LogCaptureFixture) -> None:
    checked(edge_weight=torch.rand(EDGES.size(1) // 2))
    assert "not read: edge_weight" in caplog.text


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "x a list": ({"x": X.tolist()}, "data.x: "),
    "y of test -1": ({"y": torch.where(torch.arange(NODES) == TEST[0], -1, Y)}, "of test"),
    "directed": ({"edge_index": EDGES[:, EDGES[0] < EDGES[1]]}, "to_undirected"),
    "edges 1-based": ({"edge_index": EDGES + 1}, "data: edge_index names node 120"),
    **{f"weight {key}": ({key: torch.rand(EDGES.size(1))}, f"data.{key}: ") for key in WEIGHTS},
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
