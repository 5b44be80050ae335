from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck

from robust_diffusion.operators import Graph, random_walk, return_probabilities
from tests import oracles
from tests.graphs import NODES, random_edges, random_graph


@pytest.mark.parametrize("at_a_time", [1, 3, 256])
@pytest.mark.parametrize("self_loops", [True, False])
def test_equals_the_diagonals_of_the_dense_powers(
    self_loops: bool, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_walk, "NODES_AT_A_TIME", at_a_time)
    graph = random_graph(self_loops=self_loops)
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    found = return_probabilities(graph, 6)
    torch.testing.assert_close(found, oracles.return_probabilities(dense, 6))
    assert (found[:, 0] == 0).all()


@pytest.mark.parametrize("at_a_time", [3, 256])
def test_gradcheck_in_the_weights(at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_walk, "NODES_AT_A_TIME", at_a_time)
    graph = random_graph()
    weight = graph.weight.clone().requires_grad_()
    assert gradcheck(lambda w: return_probabilities(replace(graph, weight=w), 4), weight)


def test_an_edge_of_weight_0_is_none_and_has_a_gradient() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 0, 2, 3, 0], [1, 0, 2, 1, 2, 0, 0, 3]])
    weight = torch.tensor([1.0, 1, 1, 1, 0, 0, 0, 0], dtype=torch.float64, requires_grad=True)
    with_it = Graph.from_edge_index(edges, weight, num_nodes=4)
    without = Graph.from_edge_index(edges[:, :4], num_nodes=4, dtype=torch.float64)
    found = return_probabilities(with_it, 3)
    assert torch.equal(found, return_probabilities(without, 3))
    (gradient,) = torch.autograd.grad(found[:, 2].sum(), weight)  # of triangles
    assert gradient.isfinite().all()
    assert (gradient[4:6] > 0).all()


def test_keeps_one_result_for_the_same_edges_or_weights() -> None:
    edges, weight = random_edges()

    def graph(weight: torch.Tensor | None = None) -> Graph:
        return Graph.from_edge_index(edges, weight, num_nodes=NODES, dtype=torch.float64)

    plain, weighted = return_probabilities(graph(), 3), graph(weight)
    assert return_probabilities(graph(), 3) is plain
    assert return_probabilities(graph(), 2).shape == (NODES, 2)
    assert not torch.allclose(return_probabilities(weighted, 3), plain)
    kept = return_probabilities(weighted, 3)
    assert return_probabilities(weighted.carrying(more=weight), 3) is kept
    weighted.weight.mul_(torch.linspace(1, 2, weighted.num_edges))
    assert not torch.allclose(return_probabilities(weighted, 3), kept)


def test_what_inference_mode_found_serves_training() -> None:
    graph = random_graph(weighted=False)
    with torch.inference_mode():
        assert not return_probabilities(graph, 3).is_inference()
        other = Graph(graph.src, graph.dst, graph.weight.clone(), NODES)
        torch.testing.assert_close(
            return_probabilities(other, 3), return_probabilities(graph, 3), rtol=0, atol=0
        )
