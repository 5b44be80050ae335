import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_diffusion.operators import Graph
from tests import oracles
from tests.graphs import NODES, random_edges

edge_lists = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=25
).map(lambda pairs: torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T)


@settings(max_examples=30, deadline=None)
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


@settings(max_examples=30, deadline=None)
@given(edge_index=edge_lists)
def test_pointers_and_orders_describe_the_edges(edge_index: torch.Tensor) -> None:
    graph = Graph.from_edge_index(edge_index, num_nodes=NODES, self_loops=False)
    assert graph.rowptr[0] == graph.colptr[0] == 0
    assert graph.rowptr.diff().tolist() == torch.bincount(graph.dst, minlength=NODES).tolist()
    assert graph.colptr.diff().tolist() == torch.bincount(graph.src, minlength=NODES).tolist()
    assert (graph.src[graph.order_by_source].diff() >= 0).all()
    assert torch.equal(graph.dst[graph.order_by_source], graph.dst_by_source)
    assert graph.order_by_source.sort().values.tolist() == list(range(graph.num_edges))


def test_self_loops_of_weight_one_are_added_only_where_missing() -> None:
    edge_index = torch.tensor([[0, 1, 1], [1, 1, 0]])
    weight = torch.tensor([2.0, 0.3, 4.0])
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=3)
    dense = oracles.adjacency(graph.edge_index, graph.weight, 3)
    expected = torch.tensor([[1.0, 4.0, 0.0], [2.0, 0.3, 0.0], [0.0, 0.0, 1.0]])
    assert torch.equal(dense, expected)
    assert graph.num_edges == 5


def test_weights_are_one_and_of_the_wanted_type_when_absent() -> None:
    edge_index, _ = random_edges()
    graph = Graph.from_edge_index(edge_index, num_nodes=NODES, dtype=torch.float64)
    assert torch.equal(graph.weight, torch.ones(graph.num_edges, dtype=torch.float64))
    assert graph.num_edges == edge_index.size(1) + NODES


def test_gradients_of_the_weights_reach_the_caller_in_the_callers_order() -> None:
    edge_index, weight = random_edges()
    weight.requires_grad_()
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=NODES)
    label = graph.dst * NODES + graph.src
    (graph.weight * label).sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, (edge_index[1] * NODES + edge_index[0]).double())


def test_graph_without_edges() -> None:
    none = torch.zeros(2, 0, dtype=torch.long)
    graph = Graph.from_edge_index(none, num_nodes=3, self_loops=False)
    assert graph.num_edges == 0
    assert graph.rowptr.tolist() == graph.colptr.tolist() == [0, 0, 0, 0]
    looped = Graph.from_edge_index(none, num_nodes=3)
    assert looped.edge_index.tolist() == [[0, 1, 2], [0, 1, 2]]


def test_edges_of_the_same_pair_are_kept_apart() -> None:
    edge_index = torch.tensor([[0, 0], [1, 1]])
    graph = Graph.from_edge_index(edge_index, torch.tensor([1.0, 2.0]), num_nodes=2)
    assert graph.num_edges == 4
    assert graph.weight[graph.src != graph.dst].tolist() == [1.0, 2.0]
