import torch

from robust_diffusion.operators import Graph, gather_dst, gather_src, segment_sum
from robust_diffusion.operators.segments import segment_max
from tests.graphs import random_graph, random_signal


def test_segment_sum_adds_what_arrives() -> None:
    graph = random_graph()
    values = torch.randn(graph.num_edges, 3, dtype=torch.float64)
    for node, total in enumerate(segment_sum(values, graph)):
        torch.testing.assert_close(total, values[graph.dst == node].sum(0))


def test_gathers_carry_the_values_of_the_ends() -> None:
    graph, z = random_graph(), random_signal()
    assert torch.equal(gather_dst(z, graph), z[graph.dst])
    assert torch.equal(gather_src(z, graph), z[graph.src])


def test_gather_dst_is_the_transpose_of_segment_sum() -> None:
    graph, z = random_graph(), random_signal(channels=3)
    values = torch.randn(graph.num_edges, 3, dtype=torch.float64)
    torch.testing.assert_close(
        (gather_dst(z, graph) * values).sum(), (z * segment_sum(values, graph)).sum()
    )


def test_segment_max_is_the_largest_that_arrives_and_has_no_gradient() -> None:
    graph = random_graph()
    values = torch.randn(graph.num_edges, 2, dtype=torch.float64, requires_grad=True)
    largest = segment_max(values, graph)
    assert not largest.requires_grad
    for node, value in enumerate(largest):
        assert torch.equal(value, values.detach()[graph.dst == node].max(0).values)


def test_nothing_arrives() -> None:
    none = torch.zeros(2, 0, dtype=torch.long)
    for edge_index in (none, torch.tensor([[0], [2]])):
        graph = Graph.from_edge_index(edge_index, num_nodes=4, self_loops=False)
        values = torch.ones(graph.num_edges, 1)
        assert segment_sum(values, graph)[1] == 0
        assert segment_max(values, graph)[1] == -torch.inf
