import torch

from robust_diffusion.flows import HangQuad
from tests import oracles
from tests.graphs import NODES, build_flow, random_graph, random_state


def test_equals_hamiltons_equations_of_the_dense_energy() -> None:
    flow, graph = build_flow(HangQuad, scale="graph"), random_graph()
    state = random_state(flow).requires_grad_()
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    energy = oracles.quadratic_energy(*state.chunk(2, 1), dense, flow.linear, flow.ends)
    by_q, by_p = torch.autograd.grad(energy, state)[0].chunk(2, 1)
    found = flow(torch.tensor(0.0), state, graph)
    torch.testing.assert_close(found, torch.cat([by_p, -by_q], 1))
