import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_diffusion.operators import Graph, spmm
from tests import oracles
from tests.backends import BACKENDS, backend
from tests.graphs import NODES, random_graph, random_signal
from tests.operators.test_graph import edge_lists


@settings(max_examples=30)
@given(edge_index=edge_lists, channels=st.integers(1, 3))
def test_equals_the_dense_product(edge_index: torch.Tensor, channels: int) -> None:
    graph = Graph.from_edge_index(edge_index, num_nodes=NODES, self_loops=False)
    weight, z = torch.randn(graph.num_edges, dtype=torch.float64), random_signal(1, channels)
    dense = oracles.adjacency(graph.edge_index, weight, NODES)
    torch.testing.assert_close(spmm(weight, z, graph), dense @ z)


def test_gradcheck_in_weight_and_features() -> None:
    graph = random_graph()
    weight = torch.randn(graph.num_edges, dtype=torch.float64, requires_grad=True)
    z = random_signal().requires_grad_()
    assert torch.autograd.gradcheck(lambda w, x: spmm(w, x, graph), (weight, z))


def test_strided_inputs_and_expanded_gradients() -> None:
    graph = random_graph()
    z = random_signal().T.contiguous().T.requires_grad_()
    assert not z.is_contiguous()
    weight = graph.weight.clone().requires_grad_()
    spmm(weight, z, graph).sum().backward()
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    torch.testing.assert_close(z.grad, dense.sum(0)[:, None].expand_as(z))
    torch.testing.assert_close(weight.grad, z.detach()[graph.src].sum(1))


@pytest.mark.parametrize("name", BACKENDS)
def test_the_derivative_of_a_derivative(name: str) -> None:
    graph = random_graph()
    weight = torch.randn(graph.num_edges, dtype=torch.float64, requires_grad=True)
    z = random_signal().requires_grad_()
    with backend(name):
        assert torch.autograd.gradgradcheck(lambda w, x: spmm(w, x, graph), (weight, z))


@pytest.mark.parametrize("of_weights", [False, True])
def test_saves_no_tensor_of_edges_times_channels(of_weights: bool) -> None:
    """And no features for weights without a gradient."""
    graph, shapes = random_graph(), []
    z = random_signal(0, 50).requires_grad_()
    weight = graph.weight.clone().requires_grad_(of_weights)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda saved: shapes.append(saved.shape), lambda saved: saved
    ):
        spmm(weight, z, graph)
    assert sorted(shapes) == sorted([weight.shape, z.shape] if of_weights else [weight.shape])
