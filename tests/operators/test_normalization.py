import pytest
import torch

from robust_diffusion.operators import (
    Graph,
    graph_with_degree,
    mean_weights,
    symmetric_weights,
)
from tests import oracles
from tests.graphs import NODES, random_edges


@pytest.mark.parametrize("symmetric", [True, False])
def test_equal_the_dense_ones(symmetric: bool) -> None:
    edge_index, weight = random_edges(symmetric=symmetric)
    x = torch.zeros(NODES, 1).double()
    graph, degree = graph_with_degree(x, edge_index, weight)
    dense = oracles.adjacency(edge_index, weight, NODES, self_loops=True)
    inverse = torch.diag(1 / dense.sum(1))
    halves = oracles.normalized_adjacency(edge_index, weight, NODES)
    for found, expected in (
        (symmetric_weights(graph), halves),
        (symmetric_weights(graph, degree), halves),
        (symmetric_weights(graph, degree, order=-1), inverse @ dense @ inverse),
        (mean_weights(graph, degree), inverse @ dense),
    ):
        torch.testing.assert_close(found, expected[graph.dst, graph.src])


def test_an_edge_from_a_node_that_none_reaches_weighs_nothing() -> None:
    """Rewiring in training may drop self-loops."""
    edges = torch.tensor([[0, 1, 2], [1, 2, 1]])
    weight = torch.ones(3, requires_grad=True)
    graph = Graph.from_edge_index(edges, weight, num_nodes=3, self_loops=False)
    found = symmetric_weights(graph)
    assert sorted(found.tolist()) == pytest.approx([0, 2**-0.5, 2**-0.5])
    (gradient,) = torch.autograd.grad(found.sum(), weight)
    assert gradient.isfinite().all()
