import torch

from robust_diffusion.flows import Beltrami
from tests.graphs import build_flow, random_graph


def test_two_smooth_ends_weigh_more() -> None:
    flow, graph = build_flow(Beltrami), random_graph(weighted=False)
    inverse = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], dtype=torch.float64)
    expected = inverse[graph.dst] * inverse[graph.src]
    assert torch.equal(flow.modulation_scores(inverse, graph), expected)
