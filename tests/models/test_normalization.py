import pytest
import torch

from robust_diffusion.models.normalization import graph_with_degree, mean_weights
from robust_diffusion.operators import symmetric_weights
from tests import oracles
from tests.graphs import NODES, random_edges


def both(edge_index: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x = torch.zeros(NODES, 1, dtype=weight.dtype)
    graph, degree = graph_with_degree(x, edge_index, weight)
    weights = (
        symmetric_weights(graph, degree),
        symmetric_weights(graph, degree, order=-1),
        mean_weights(graph, degree),
    )
    return tuple(oracles.adjacency(graph.edge_index, w, NODES) for w in weights)


@pytest.mark.parametrize("symmetric", [True, False])
def test_equal_the_dense_ones(symmetric: bool) -> None:
    edge_index, weight = random_edges(symmetric=symmetric)
    dense = oracles.adjacency(edge_index, weight, NODES, self_loops=True)
    inverse = torch.diag(1 / dense.sum(1))
    halves, wholes, means = both(edge_index, weight)
    torch.testing.assert_close(halves, oracles.normalized_adjacency(edge_index, weight, NODES))
    torch.testing.assert_close(wholes, inverse @ dense @ inverse)
    torch.testing.assert_close(means, inverse @ dense)


def test_weights_of_zero_give_zeros() -> None:
    every_node = torch.arange(NODES).expand(2, -1)
    edge_index = torch.cat([random_edges()[0], every_node], 1)
    for dense in both(edge_index, torch.zeros(edge_index.size(1))):
        assert torch.equal(dense, torch.zeros(NODES, NODES))
