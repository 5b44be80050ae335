import math

import pytest
import torch
from torch.autograd import gradcheck

from robust_diffusion.operators import (
    Graph,
    gradient_norm,
    graph_divergence,
    graph_gradient,
    graph_laplacian,
)
from tests import oracles
from tests.graphs import NODES, random_graph, random_signal

KINDS = ["edges", "residual"]


@pytest.fixture(params=[False, True], ids=["no_loops", "loops"])
def graph(request: pytest.FixtureRequest) -> Graph:
    graph = random_graph(1, symmetric=True, self_loops=request.param)
    assert torch.bincount(graph.dst, minlength=NODES).min() > 0
    return graph


def test_operators_equal_the_dense_ones(graph: Graph) -> None:
    z, given = random_signal(), (graph.edge_index, graph.weight, NODES)
    psi = graph_gradient(z, graph)
    torch.testing.assert_close(psi, oracles.gradient_matrix(*given) @ z)
    torch.testing.assert_close(
        graph_divergence(psi, graph), oracles.divergence_matrix(*given) @ psi
    )
    torch.testing.assert_close(graph_laplacian(z, graph), oracles.laplacian_matrix(*given) @ z)


@pytest.mark.parametrize("operator", [graph_laplacian, graph_gradient])
def test_isolated_nodes_are_finite(operator: object) -> None:
    edge_index = torch.tensor([[0, 1], [1, 0]])
    graph = Graph.from_edge_index(edge_index, num_nodes=NODES, self_loops=False)
    z = random_signal().float().requires_grad_()
    out = operator(z, graph)  # type: ignore[operator]
    out.sum().backward()
    assert out.isfinite().all()
    assert z.grad is not None
    assert z.grad.isfinite().all()
    if operator is graph_laplacian:
        assert (out[2:] == 0).all()


@pytest.mark.parametrize("ceiling", [None, 3.0, 20.0])
@pytest.mark.parametrize("kind", KINDS)
def test_norm_equals_the_dense_one(kind: str, ceiling: float | None) -> None:
    graph, z = random_graph(), random_signal()
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    expected = oracles.gradient_norm(z, dense, kind, 0.1, math.inf if ceiling is None else ceiling)
    actual = gradient_norm(z, graph.weight, graph, kind=kind, floor=0.1, ceiling=ceiling)
    torch.testing.assert_close(actual, expected)
    unbounded = gradient_norm(z, graph.weight, graph, kind=kind, floor=0.1)
    assert torch.equal(actual, unbounded) == (ceiling is None)


@pytest.mark.parametrize("ceiling", [None, 12.0])
@pytest.mark.parametrize("kind", KINDS)
def test_norm_gradcheck(kind: str, ceiling: float | None) -> None:
    graph = random_graph()
    z, weight = random_signal().requires_grad_(), graph.weight.clone().requires_grad_()
    assert gradcheck(
        lambda x, w: gradient_norm(x, w, graph, kind=kind, floor=0.1, ceiling=ceiling), (z, weight)
    )
