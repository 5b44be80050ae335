import math

import pytest
import torch

from robust_diffusion.flows import GraphCON
from robust_diffusion.operators import Graph
from robust_diffusion.solver import Solver
from tests import oracles
from tests.graphs import CHANNELS, NODES, build_flow, random_graph, random_signal, random_state

TIME = torch.tensor(0.0)


def test_equals_the_dense_system() -> None:
    flow, graph = build_flow(GraphCON, frequency=0.7, damping=0.3), random_graph()
    state = random_state(flow)
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    expected = oracles.graphcon(*state.chunk(2, 1), dense, flow.linear.weight, 0.7, 0.3)
    torch.testing.assert_close(flow(TIME, state, graph), torch.cat(expected, 1))


def test_without_coupling_it_is_the_damped_oscillator() -> None:
    flow, graph, z = build_flow(GraphCON, t_end=2.0, damping=0.4), random_graph(), random_signal()
    flow.linear.weight.data.zero_()
    found = Solver("rk4", num_steps=100).solve(flow, z, graph)
    rate, frequency = 0.2, math.sqrt(1 - 0.2**2)
    swing = math.cos(2 * frequency) + (1 + rate) / frequency * math.sin(2 * frequency)
    torch.testing.assert_close(found, math.exp(-2 * rate) * swing * z, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("t_end", [0.0, 1.0])
def test_the_positions_are_handed_on(t_end: float) -> None:
    flow, z = build_flow(GraphCON, t_end=t_end), random_signal()
    end = Solver("rk4", num_steps=2).solve(flow, z, random_graph())
    assert end.shape == (NODES, CHANNELS)
    assert torch.equal(end, z) == (t_end == 0)


def test_steps_are_those_of_the_published_scheme() -> None:
    """Three of its Euler steps, of which the state after the third is known by hand."""
    edges = torch.tensor([[0, 1], [1, 0]])
    graph = Graph.from_edge_index(edges, num_nodes=2, dtype=torch.float64)
    flow = GraphCON(1, t_end=1.5).double()
    flow.linear.weight.data.fill_(2.0)
    x = torch.tensor([[1.0], [-3.0]], dtype=torch.float64)
    # The mean of both is -1, so relu cuts the coupling, until x turns.
    found = Solver("euler", num_steps=3).solve(flow, x, graph)
    by_hand, y = x.clone(), x.clone()
    for _ in range(3):
        force = (2 * by_hand.mean(0)).clamp_min(0)
        by_hand, y = by_hand + 0.5 * y, y + 0.5 * (force - by_hand - y)
    torch.testing.assert_close(found, by_hand)
