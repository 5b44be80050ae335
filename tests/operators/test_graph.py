import gc
import weakref
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from torch import Tensor

from robust_diffusion.errors import DataError
from robust_diffusion.flows import Beltrami, Flow, Heat
from robust_diffusion.operators import Graph, SortedEdges, features, spmm, symmetric_weights
from robust_diffusion.operators.features import SparseMatrix
from tests import oracles
from tests.backends import BACKENDS, backend
from tests.graphs import (
    NODES,
    build_flow,
    random_edges,
    random_graph,
    random_signal,
    without_type_checks,
)

edge_lists = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=25
).map(lambda pairs: torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T)


@settings(max_examples=30)
@given(edge_index=edge_lists)
def test_any_edge_list_becomes_sorted_and_complete(edge_index: torch.Tensor) -> None:
    weight = torch.rand(edge_index.size(1), dtype=torch.float64) + 0.1
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=NODES, self_loops=False)
    assert (graph.dst.diff() >= 0).all()
    assert graph.num_edges == edge_index.size(1)
    torch.testing.assert_close(
        oracles.adjacency(graph.edge_index, graph.weight, NODES),
        oracles.adjacency(edge_index, weight, NODES),
    )


@settings(max_examples=30)
@given(edge_index=edge_lists)
def test_pointers_and_orders_describe_the_edges(edge_index: torch.Tensor) -> None:
    graph = Graph.from_edge_index(edge_index, num_nodes=NODES, self_loops=False)
    edges, order = graph.edges, graph.edges.order_by_source
    assert edges.rowptr[0] == edges.colptr[0] == 0
    assert edges.rowptr.diff().tolist() == torch.bincount(edges.dst, minlength=NODES).tolist()
    assert edges.colptr.diff().tolist() == torch.bincount(edges.src, minlength=NODES).tolist()
    assert (edges.src[order].diff() >= 0).all()
    assert edges.dst[order].tolist() == edges.dst_by_source.tolist()
    assert order.sort().values.tolist() == list(range(graph.num_edges))
    assert edges.sources.tolist() == edges.src.tolist()
    assert edges.destinations.tolist() == edges.dst.tolist()


def test_self_loops_of_weight_one_are_added_only_where_missing() -> None:
    edge_index = torch.tensor([[0, 1, 1], [1, 1, 0]])
    weight = torch.tensor([2.0, 0.3, 4.0])
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=3)
    dense = oracles.adjacency(graph.edge_index, graph.weight, 3)
    expected = torch.tensor([[1.0, 4.0, 0.0], [2.0, 0.3, 0.0], [0.0, 0.0, 1.0]])
    assert torch.equal(dense, expected)
    assert graph.num_edges == 5


@pytest.mark.parametrize("kind", [torch.bool, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_mask_of_edges_weighs_as_the_edges_that_it_keeps(
    kind: torch.dtype, dtype: torch.dtype
) -> None:
    edge_index, _ = random_edges()
    keeps = torch.arange(edge_index.size(1)) % 3 > 0
    with without_type_checks():
        masked = Graph.from_edge_index(edge_index, keeps.to(kind), num_nodes=NODES, dtype=dtype)
        few = Graph.from_edge_index(edge_index[:, keeps], num_nodes=NODES, dtype=dtype)
        dense = [
            oracles.adjacency(g.edge_index, symmetric_weights(g), NODES) for g in (masked, few)
        ]
    assert masked.weight.dtype == dtype
    torch.testing.assert_close(*dense)


@pytest.mark.parametrize(
    ("weight", "shown"),
    [
        (torch.ones(4, 1), "edge_weight: expected one number for each of 4 edges, got shape 4 x 1"),
        (torch.ones(3), "edge_weight: .* got shape 3; "),
        (torch.ones(()), "edge_weight: .* got shape no dimension; "),
    ],
)
def test_weights_that_are_not_one_per_edge_are_refused(weight: torch.Tensor, shown: str) -> None:
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    with without_type_checks(), pytest.raises(DataError, match=shown):
        Graph.from_edge_index(edge_index, weight, num_nodes=3)


@pytest.mark.parametrize("kind", [torch.float32, torch.bool])
def test_numbers_of_nodes_that_are_not_whole_are_refused(kind: torch.dtype) -> None:
    with without_type_checks(), pytest.raises(DataError, match=r"edge_index: .*edge_index\.long"):
        Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]).to(kind), num_nodes=2)


@pytest.mark.parametrize(("made", "inference"), [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    "change",
    [
        lambda edges: edges.__setitem__((0, 0), (edges[0, 0] + 1) % NODES),
        lambda edges: edges.copy_(edges.flip(0).roll(1, 1)),
    ],
    ids=["entry", "all"],
)
def test_a_change_in_place_is_noticed(
    change: Callable[[torch.Tensor], object], inference: bool, made: bool
) -> None:
    with torch.inference_mode(made and inference):
        edge_index, weight = random_edges()
        before = Graph.from_edge_index(edge_index, weight, num_nodes=NODES, self_loops=False)
    with torch.inference_mode(inference):
        change(edge_index)
    with torch.inference_mode(made and inference):
        after = Graph.from_edge_index(edge_index, weight, num_nodes=NODES, self_loops=False)
    assert after.edges is not before.edges
    dense = [oracles.adjacency(g.edge_index, g.weight, NODES) for g in (before, after)]
    assert torch.equal(dense[1], oracles.adjacency(edge_index, weight, NODES))
    assert not torch.equal(*dense)


def test_weights_are_absent_where_all_are_1() -> None:
    edge_index, weight = random_edges()
    plain = Graph.from_edge_index(edge_index, num_nodes=NODES, dtype=torch.float64)
    weighted = Graph.from_edge_index(edge_index, weight.float(), num_nodes=NODES)
    assert plain.weight is None
    assert torch.equal(plain.full_weight, torch.ones(plain.num_edges, dtype=torch.float64))
    assert weighted.full_weight is weighted.weight
    assert (plain.dtype, weighted.dtype) == (torch.float64, torch.float32)
    assert weighted.edges is plain.edges
    assert replace(weighted, weight=None).weight is None


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("cls", [Heat, Beltrami])
def test_edges_that_are_not_sorted_are_refused(cls: type[Flow], name: str) -> None:
    graph = random_graph()
    edges = SortedEdges(graph.src.flip(0), graph.dst.flip(0), NODES)
    graph = Graph(edges, graph.weight.flip(0))
    with backend(name), pytest.raises(DataError, match=r"^graph\.dst: .*Graph\.from_edge_index$"):
        build_flow(cls)(torch.tensor(0.0), random_signal(), graph)


def test_a_layout_vanishes_with_its_tensor() -> None:
    edge_index, weight = random_edges()
    weight.requires_grad_()
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=NODES)
    spmm(graph.weight, random_signal().requires_grad_(), graph).sum().backward()
    layout = weakref.ref(graph.edges)
    del graph
    gc.collect()
    assert layout() is not None
    assert Graph.from_edge_index(edge_index, num_nodes=NODES).edges is layout()
    del edge_index
    gc.collect()
    assert layout() is None


def gradient_through(edge_index: torch.Tensor) -> torch.Tensor:
    weight = torch.ones(edge_index.size(1), dtype=torch.float64, requires_grad=True)
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=NODES)
    z = random_signal().requires_grad_()
    spmm(graph.weight, spmm(graph.weight, z, graph), graph).square().sum().backward()
    return weight.grad


@pytest.mark.parametrize("made_in_inference_mode", [False, True])
def test_first_use_in_inference_mode_does_not_hinder_training(made_in_inference_mode: bool) -> None:
    expected = gradient_through(random_edges()[0])
    with torch.inference_mode(made_in_inference_mode):
        edge_index, weight = random_edges()
    with torch.inference_mode():
        for values in (None, weight):
            graph = Graph.from_edge_index(edge_index, values, num_nodes=NODES, dtype=torch.float64)
            spmm(graph.full_weight, random_signal(), graph)
            assert graph.edges.colptr.numel() == NODES + 1
    assert torch.equal(gradient_through(edge_index), expected)


def dense_matrix(rows: int = 7, columns: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    matrix = torch.randn(rows, columns, dtype=torch.float64, generator=generator)
    matrix[torch.rand(rows, columns, generator=generator) < 0.6] = 0
    matrix[2], matrix[:, 1] = 0, 0  # a row and a column without entries
    return matrix


def test_the_product_and_its_gradient_are_those_of_the_dense_matrix() -> None:
    dense = dense_matrix()
    matrix = SparseMatrix(csr_matrix(dense.numpy()))
    for other in (torch.randn(5, 3).double(), torch.randn(3, 5).double().t()):
        torch.testing.assert_close(matrix @ other, dense @ other)
        assert torch.autograd.gradcheck(lambda z: matrix @ z, other.requires_grad_())


def test_products_along_edges_are_those_of_the_dense_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = dense_matrix()
    edge_index = torch.tensor([[0, 1, 2, 6, 3], [1, 0, 4, 4, 3]])
    eye = torch.eye(5, dtype=torch.float64)
    expected = dense[edge_index[0]] * dense[edge_index[1]]
    for held in (features.ENTRIES_AT_A_TIME, 1):
        monkeypatch.setattr(features, "ENTRIES_AT_A_TIME", held)
        products = SparseMatrix(csr_matrix(dense.numpy())).products(*edge_index)
        torch.testing.assert_close(products @ eye, expected)
        assert products.entries.nnz == expected.count_nonzero()


def test_sparse_features_of_another_width_raise_as_a_tensor_does() -> None:
    x = features.sparse_features(torch.eye(40))
    assert isinstance(x, features.SparseFeatures)
    for width in (39, 41):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            x.linear(torch.ones(3, width))


def test_large_features_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x, free = torch.eye(50).repeat(2, 1), torch.rand(3, 50)
    norm, linear = torch.nn.LayerNorm(50), torch.nn.Linear(50, 4)
    linear.weight.requires_grad = False
    whole = features.sparse_features(x)
    expected = linear(norm(torch.cat([x, free])))
    monkeypatch.setattr(features, "LARGE", 900)
    parts = features.sparse_features(x)
    assert isinstance(whole, features.SparseFeatures)
    assert isinstance(parts, features.SparseFeatures)
    assert (parts.entries.entries != whole.entries.entries).nnz == 0
    rows = features.InjectedRows(x, {}, free).layer_norm(norm)
    assert isinstance(rows, features.InjectedRows)
    torch.testing.assert_close(rows.linear(linear.weight, linear.bias), expected)
    alone = features.InjectedRows(x, {}, x[:0])
    assert alone.dense() is x
