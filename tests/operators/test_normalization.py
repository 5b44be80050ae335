import pytest
import torch

from robust_diffusion.operators import Graph, segment_sum, symmetric_weights
from tests import oracles
from tests.graphs import NODES, random_edges, random_graph


def test_equals_the_normalized_matrix_with_and_without_the_degree() -> None:
    edge_index, weight = random_edges()
    graph = random_graph()
    expected = oracles.normalized_adjacency(edge_index, weight, NODES)[graph.dst, graph.src]
    torch.testing.assert_close(symmetric_weights(graph), expected)
    degree = segment_sum(graph.weight, graph)
    torch.testing.assert_close(symmetric_weights(graph, degree), expected)


def test_an_edge_from_a_node_that_none_reaches_weighs_nothing() -> None:
    """Rewiring in training may drop self-loops."""
    edges = torch.tensor([[0, 1, 2], [1, 2, 1]])
    weight = torch.ones(3, requires_grad=True)
    graph = Graph.from_edge_index(edges, weight, num_nodes=3, self_loops=False)
    found = symmetric_weights(graph)
    assert sorted(found.tolist()) == pytest.approx([0, 2**-0.5, 2**-0.5])
    (gradient,) = torch.autograd.grad(found.sum(), weight)
    assert gradient.isfinite().all()
