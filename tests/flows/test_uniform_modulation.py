import pytest
import torch

from robust_diffusion.flows import Grand, PLaplacian, UniformModulation
from robust_diffusion.operators import segment_sum
from tests.backends import BACKENDS, backend
from tests.graphs import build_flow, random_graph, random_signal

TIME = torch.tensor(0.0)


@pytest.mark.parametrize("name", BACKENDS)
def test_it_is_grand_over_the_degree(name: str) -> None:
    z, graph = random_signal(), random_graph(weighted=False)
    with backend(name):
        flow, grand = build_flow(UniformModulation), build_flow(Grand)
        degree = segment_sum(graph.weight, graph)[:, None]
        torch.testing.assert_close(flow(TIME, z, graph), grand(TIME, z, graph) / degree)


@pytest.mark.parametrize("name", BACKENDS)
def test_it_is_the_p_laplacian_of_p_two(name: str) -> None:
    z, graph = random_signal(), random_graph()
    with backend(name):
        flow, other = build_flow(UniformModulation), build_flow(PLaplacian, p=2.0)
        torch.testing.assert_close(flow(TIME, z, graph), other(TIME, z, graph))
