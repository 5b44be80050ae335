import torch

from robust_diffusion.operators import Graph, gather_dst, gather_src, segment_sum
from robust_diffusion.operators.segments import segment_max
from tests.graphs import NODES, random_graph, random_signal


def test_sums_and_gathers_are_products_with_the_incidence_matrix() -> None:
    graph, z = random_graph(), random_signal(channels=3)
    arrives = torch.nn.functional.one_hot(graph.dst, NODES).double().T
    values = torch.randn(graph.num_edges, 3, 2, dtype=torch.float64)
    total = segment_sum(values, graph)
    torch.testing.assert_close(total.flatten(1), arrives @ values.flatten(1))
    assert torch.equal(gather_dst(z, graph), arrives.T @ z)
    assert torch.equal(gather_src(z, graph), z[graph.src])


def test_segment_max_is_the_largest_that_arrives_and_has_no_gradient() -> None:
    graph = random_graph()
    values = torch.randn(graph.num_edges, 2, dtype=torch.float64, requires_grad=True)
    largest = segment_max(values, graph)
    assert not largest.requires_grad
    for node, value in enumerate(largest):
        assert torch.equal(value, values.detach()[graph.dst == node].max(0).values)


def test_nothing_arrives() -> None:
    for edge_index in (torch.zeros(2, 0, dtype=torch.long), torch.tensor([[0], [2]])):
        graph = Graph.from_edge_index(edge_index, num_nodes=4, self_loops=False)
        values = torch.ones(graph.num_edges, 1)
        assert segment_sum(values, graph)[1] == 0
        assert segment_max(values, graph)[1] == -torch.inf
