import math

import pytest
import torch
from torch import Tensor

from robust_diffusion.models import Guard
from robust_diffusion.operators import Graph
from tests import oracles
from tests.graphs import NODES, random_graph, random_signal


def plain_graph(seed: int = 0) -> Graph:
    return random_graph(seed, symmetric=True, weighted=False)


def with_leaf(graph: Graph) -> tuple[Graph, Tensor]:
    weight = graph.weight.clone().requires_grad_()
    return Graph(graph.src, graph.dst, weight, graph.num_nodes), weight


def dense_of(graph: Graph) -> Tensor:
    return oracles.adjacency(graph.edge_index, graph.weight, graph.num_nodes)


@pytest.mark.parametrize(
    ("seed", "threshold", "gradient"),
    [(0, 0.0, "exact"), (1, 0.1, "straight_through"), (2, 0.6, "detached")],
)
def test_equals_the_dense_one_layer_after_layer(seed: int, threshold: float, gradient: str) -> None:
    guard, graph = Guard(threshold=threshold, gradient=gradient), plain_graph(seed)
    dense = dense_of(graph)
    for layer in range(3):
        x = random_signal(10 * seed + layer)
        dense, expected = oracles.guard(x, dense, threshold)
        graph, weighted = guard(x, graph)
        torch.testing.assert_close(dense_of(graph), dense, rtol=0, atol=0)
        torch.testing.assert_close(dense_of(weighted), expected)


def test_a_node_without_neighbours_keeps_itself() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]), num_nodes=3, dtype=torch.float64)
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    _, weighted = Guard()(x, graph)
    torch.testing.assert_close(dense_of(weighted), math.e * torch.eye(3, dtype=torch.float64))


def test_a_negative_similarity_that_stays_counts_nothing() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [2, 2]]), num_nodes=3, dtype=torch.float64)
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [1.0, 0.2]], dtype=torch.float64)
    _, weighted = Guard(threshold=-1.0)(x, graph)
    dense = dense_of(weighted)
    assert dense[2, 0] == pytest.approx(math.e)
    assert dense[2, 1] == 1
    assert dense[2, 2] == pytest.approx(math.exp(1 / 3))


@pytest.mark.parametrize("reweight", [True, False])
def test_exact_gradients_are_those_of_the_weights(reweight: bool) -> None:
    graph = random_graph()
    guard = Guard(threshold=0.1, reweight=reweight)

    def judged(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        kept, weighted = guard(x, Graph(graph.src, graph.dst, weight, NODES))
        return kept.weight, weighted.weight

    inputs = (random_signal().requires_grad_(), graph.weight.clone().requires_grad_())
    assert torch.autograd.gradcheck(judged, inputs)


def gradients(gradient: str, x: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """By features and by weights of the graph, self-loops included, of a readout of the weights."""
    graph, weight = with_leaf(plain_graph())
    x = x.clone().requires_grad_()
    _, weighted = Guard(threshold=threshold, gradient=gradient)(x, graph)
    readout = torch.linspace(1, 2, weight.numel(), dtype=torch.float64)
    by_x, by_weight = torch.autograd.grad((weighted.weight * readout).sum(), (x, weight))
    return by_x, by_weight


def test_straight_through_reaches_pruned_edges() -> None:
    graph, x = plain_graph(), random_signal()
    pruned = Guard(threshold=0.5)(x, graph)[0].weight == 0
    _, exact = gradients("exact", x, 0.5)
    _, straight = gradients("straight_through", x, 0.5)
    assert (exact[pruned] == 0).all()
    assert (straight[pruned] != 0).all()
    assert (exact[~pruned] != 0).all()
