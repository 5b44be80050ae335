import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import add_self_loops, is_undirected

from robust_diffusion.data.sources.pyg import WEIGHTS, checked_graph, node_index, split_of
from robust_diffusion.errors import DataError
from tests.drawn import FEATURES, NODES, drawn_data

DATA = drawn_data()
X, Y, EDGES = DATA.x, DATA.y, DATA.edge_index
TEST = DATA.test_mask.nonzero().squeeze(1)


def checked(**changes: Any) -> Data:
    data = drawn_data(**changes)
    return checked_graph(data, split_of(data.to_dict(), NODES))


def same(found: Data) -> bool:
    return all(torch.equal(found[key], DATA[key]) for key in ("x", "y", "edge_index"))


def at(tensor: Tensor, position: Any, value: Any) -> Tensor:
    changed = tensor.clone()
    changed[position] = value
    return changed


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="as it is"),
        pytest.param({"y": Y.float()}, id="labels as floats"),
        pytest.param({"y": Y[:, None]}, id="labels in a column"),
        pytest.param({"x": X.double()}, id="features in float64"),
        pytest.param({"edge_index": EDGES.int()}, id="int32 edges"),
        pytest.param({"edge_index": EDGES.flip(1)}, id="edges in another order"),
        pytest.param({"edge_weight": torch.ones(EDGES.size(1))}, id="weights of 1"),
        pytest.param({"weight": torch.ones(EDGES.size(1), 1)}, id="networkx's weights of 1"),
        pytest.param({"edge_attr": torch.rand(EDGES.size(1), 3)}, id="edge features"),
        pytest.param({"test_mask": None, "test_idx": TEST.flip(0)}, id="test_idx"),
        pytest.param({"test_mask": None, "index_test": TEST}, id="index_test"),
        pytest.param({"test_mask": None, "test_idx": TEST.numpy()}, id="numpy"),
    ],
)
def test_one_graph_in_many_forms(changes: dict[str, Any]) -> None:
    found = checked(**changes)
    assert same(found)
    assert torch.equal(found.index_test, TEST)
    assert is_undirected(found.edge_index)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (add_self_loops(EDGES)[0], f"{NODES} self-loops; dropped"),
        (torch.cat([EDGES, EDGES[:, :4], EDGES[:, :4].flip(0)], 1), "8 edges more than once"),
        (EDGES, "not read: capacity"),
    ],
)
def test_what_is_dropped_is_told(
    caplog: pytest.LogCaptureFixture, edges: Tensor, message: str
) -> None:
    with caplog.at_level(logging.WARNING):
        assert same(checked(edge_index=edges, capacity=torch.rand(EDGES.size(1))))
    assert message in caplog.text


def test_nodes_without_a_label_stay_without() -> None:
    assert checked(y=at(Y, Y == 3, 0)).num_classes == 7
    nodes = (~(DATA.train_mask | DATA.val_mask | DATA.test_mask)).nonzero().squeeze(1)
    assert not nodes.numel()
    first = int(DATA.val_mask.nonzero()[0])
    found = checked(y=at(Y, first, -1), val_mask=at(DATA.val_mask, first, value=False))
    assert found.y[first] == -1
    assert int((found.y < 0).sum()) == 1


def test_the_given_graph_is_left_alone() -> None:
    data = drawn_data()
    before = data.clone()
    checked_graph(data, split_of(data.to_dict(), NODES))
    assert data.keys() == before.keys()
    assert all(torch.equal(data[key], before[key]) for key in data.keys())  # noqa: SIM118


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no x": ({"x": None}, r"data\.x: missing"),
    "no y": ({"y": None}, r"data\.y: missing"),
    "no edges": ({"edge_index": None}, r"data\.edge_index: missing"),
    "x a list": ({"x": X.tolist()}, r"data\.x: is a list; it must be a tensor"),
    "x sparse": ({"x": X.to_sparse()}, r"data\.x: is sparse; use data\.x\.to_dense"),
    "x a vector": ({"x": X[:, 0]}, r"data: features have shape"),
    "x NaN": ({"x": at(X, (3, 2), float("nan"))}, r"data: features .*\(nan\) at node 3, column 2"),
    "y too short": ({"y": Y[:-1]}, r"data: labels have shape"),
    "y of halves": ({"y": Y + 0.5}, r"data: label .* is not whole"),
    "y NaN": ({"y": at(Y.float(), 0, float("nan"))}, r"data: label nan is not whole"),
    "y many": ({"y": torch.eye(7)[Y]}, r"data: labels have shape \(120, 7\)"),
    "y of test -1": ({"y": at(Y, TEST[0], -1)}, r"data: node .* of test has the label -1"),
    "y -2": ({"y": at(Y, 0, -2)}, r"data: label -2 is out of range"),
    "directed": ({"edge_index": EDGES[:, EDGES[0] < EDGES[1]]}, r"is directed, .*to_undirected"),
    "edges 1-based": ({"edge_index": EDGES + 1}, r"data: edge_index names node 120"),
    "edges in rows": ({"edge_index": EDGES.T}, r"data: edge_index has shape"),
    "edges floats": ({"edge_index": EDGES.float()}, r"data: edge_index .* float32"),
    **{
        f"weights in {key}": ({key: torch.rand(EDGES.size(1))}, rf"data\.{key}: .*del data")
        for key in WEIGHTS
    },
    "no val": ({"val_mask": None}, r"data\.val_mask: missing"),
    "mask too long": ({"test_mask": torch.ones(121) > 0}, r"data\.test_mask: has shape \(121,\)"),
    "ten masks": ({"test_mask": torch.ones(NODES, 10) > 0}, r"data\.test_mask\[:, 0\]"),
    "mask of 0 and 1": ({"test_mask": DATA.test_mask.long()}, r"test_mask: .* of type bool"),
    "mask empty": ({"test_mask": torch.zeros(NODES) > 0}, r"data\.test_mask: .* one node at least"),
    "two that differ": (
        {"test_idx": TEST[1:]},
        r"data\.test_idx: names other nodes than test_mask",
    ),
    "overlap": ({"test_mask": DATA.val_mask}, r"in both index_val and index_test"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_graph_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        checked(**changes)


def test_adjacency_of_torch_sparse_is_refused() -> None:
    data = drawn_data(edge_index=None)
    data.adj_t = torch.eye(NODES).to_sparse_csr()
    with pytest.raises(DataError, match=r"data\.edge_index: .*ToSparseTensor"):
        checked_graph(data, {})


@pytest.mark.parametrize(
    "nodes",
    ["test", DATA.test_mask, DATA.test_mask.tolist(), TEST, TEST.flip(0), TEST.tolist()],
    ids=["name", "mask", "list of booleans", "numbers", "not sorted", "list"],
)
def test_nodes_in_many_forms(nodes: Any) -> None:
    assert torch.equal(node_index(DATA, nodes), TEST)


def test_all_nodes() -> None:
    assert torch.equal(node_index(DATA, "all"), torch.arange(NODES))
    assert torch.equal(node_index(DATA, np.array([3])), torch.tensor([3]))


NO_NODES: dict[str, tuple[Any, str]] = {
    "unknown name": ("tset", r"data\.tset_mask: missing"),
    "none": (None, r"nodes: is a NoneType"),
    "a number": (3, r"nodes: has shape \(\)"),
    "no node": ([], r"nodes: has shape \(0,\); it must name one node at least"),
    "beyond": ([0, NODES], r"nodes: names node 120; nodes are 0\.\.119"),
    "negative": ([-1], r"nodes: names node -1"),
    "twice": ([1, 1], r"nodes: names node 1 twice"),
    "floats": ([0.5], r"nodes: is of type torch\.float32"),
    "words": (["a"], r"nodes: is a list"),
    "short mask": (DATA.test_mask[1:], r"nodes: has shape \(119,\); a mask of this graph has 120"),
}


@pytest.mark.parametrize(("nodes", "message"), NO_NODES.values(), ids=NO_NODES)
def test_what_names_no_nodes_is_refused(nodes: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        node_index(DATA, nodes)


@pytest.mark.parametrize("build", [lambda: X, lambda: [DATA], lambda: None])
def test_what_is_no_data_is_refused(build: Callable[[], Any]) -> None:
    from tests.graphs import without_type_checks

    with without_type_checks(), pytest.raises(DataError, match=r"data: is a .*Data, such as"):
        checked_graph(build(), {})


def test_width_is_kept() -> None:
    assert checked().num_features == FEATURES
