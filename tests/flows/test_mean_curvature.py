import torch

from robust_diffusion.flows import MeanCurvature
from tests.graphs import build_flow, random_graph


def test_smooth_neighbours_weigh_more() -> None:
    flow, graph = build_flow(MeanCurvature), random_graph(weighted=False)
    inverse = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], dtype=torch.float64)
    assert torch.equal(flow.modulation_scores(inverse, graph), inverse[graph.src])
