import pytest
import torch

from robust_diffusion.flows import GREAD
from tests import oracles
from tests.graphs import NODES, build_flow, random_graph, random_signal


@pytest.mark.parametrize("reaction", ["bspm", "fisher", "allen_cahn", "zeldovich"])
def test_equals_the_dense_sum_of_diffusion_and_reaction(reaction: str) -> None:
    flow, graph, z = build_flow(GREAD, reaction=reaction), random_graph(), random_signal()
    rates = random_signal(1, nodes=2)
    flow.raw_diffusion_rate.data, flow.raw_reaction_rate.data = rates
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    key, query = flow.attention.key.weight, flow.attention.query.weight
    attended = oracles.attention(z, dense, key, query, 2)
    expected = oracles.gread(z, attended, *rates.sigmoid(), reaction)
    torch.testing.assert_close(flow(torch.tensor(0.0), z, graph), expected)
