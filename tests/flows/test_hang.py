import pytest
import torch

from robust_diffusion.flows import Hang
from robust_diffusion.solver import Solver
from tests import oracles
from tests.graphs import NODES, build_flow, random_graph, random_signal, random_state

TIME = torch.tensor(0.0)


def test_equals_the_gradient_written_out_on_dense_matrices() -> None:
    flow, graph = build_flow(Hang, scale="graph"), random_graph()
    state = random_state(flow)
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    expected = oracles.hang(*state.chunk(2, 1), dense, flow.inner, flow.outer)
    torch.testing.assert_close(flow(TIME, state, graph), torch.cat(expected, 1))


def test_the_energy_by_nodes_takes_the_same_path_at_another_speed() -> None:
    whole, graph, z = build_flow(Hang, scale="graph"), random_graph(), random_signal()
    speed = whole.energy(z, z, graph).item()
    by_node = build_flow(Hang, scale="node", t_end=1 / speed)
    solver = Solver("rk4", num_steps=50)
    found, expected = (solver.solve(flow, z, graph) for flow in (by_node, whole))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert speed != pytest.approx(1, rel=0.1)
