import torch

from robust_diffusion.flows import GrandPP
from robust_diffusion.solver import Solver
from tests import oracles
from tests.graphs import NODES, build_flow, random_graph, random_signal


def test_equals_the_dense_diffusion_with_a_source() -> None:
    flow, z, initial = build_flow(GrandPP, source=0.6), random_signal(), random_signal(1)
    graph = flow.prepare(initial, random_graph())
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    key, query = flow.attention.key.weight, flow.attention.query.weight
    attended = oracles.attention(z, dense, key, query, 2)
    expected = oracles.grand_pp(z, initial, attended, 0.6)
    torch.testing.assert_close(flow(torch.tensor(0.0), z, graph), expected)


def test_the_source_keeps_nodes_apart() -> None:
    z, graph = random_signal(), random_graph()
    ends = [
        Solver("rk4", num_steps=40).solve(build_flow(GrandPP, t_end=20.0, source=s), z, graph)
        for s in (1e-6, 1.0)
    ]
    assert ends[0].std(0).max() < 0.01
    assert ends[1].std(0).min() > 0.1
