"""BLEND; its positions by themselves are tested in `tests/operators/test_random_walk.py`."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import gradcheck

from robust_diffusion.flows import Blend
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.operators import Graph
from tests import oracles
from tests.graphs import (
    CHANNELS,
    NODES,
    build_flow,
    random_graph,
    random_signal,
)

TIME = torch.tensor(0.0)
SOLVER = Solver("rk4", num_steps=2)


def dense_parts(flow: Blend, graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    return dense, flow.attention.key.weight, flow.attention.query.weight


def test_a_step_from_features_and_return_probabilities_equals_the_dense_one() -> None:
    flow, graph, x = build_flow(Blend, t_end=0.3, positions=4), random_graph(), random_signal()
    dense = dense_parts(flow, graph)
    u = oracles.return_probabilities(dense[0], 4) @ flow.encode.weight.T + flow.encode.bias
    state = flow.initial_state(x, graph)
    assert state.shape == (NODES, CHANNELS + 4)
    torch.testing.assert_close(state, torch.cat([x, u], 1))
    found = Solver("euler", num_steps=1).solve(flow, x, graph)
    expected = x + 0.3 * oracles.blend(x, u, *dense, 2, 1.0)[0]
    torch.testing.assert_close(found, expected)


def test_gradcheck_in_features_and_edge_weights() -> None:
    """Through the positions too, which the right-hand side alone does not see."""
    flow, graph = build_flow(Blend, positions=3), random_graph()
    x, weight = random_signal().requires_grad_(), graph.weight.clone().requires_grad_()
    solver = Solver("rk4", num_steps=1)
    assert gradcheck(lambda x, w: solver.solve(flow, x, replace(graph, weight=w)), (x, weight))


def test_the_attack_on_an_edge_reaches_the_positions() -> None:
    flow, graph, x = build_flow(Blend), random_graph(), random_signal()
    weight = graph.weight.clone().requires_grad_()
    positions = flow.initial_state(x, replace(graph, weight=weight))[:, CHANNELS:]
    (gradient,) = torch.autograd.grad(positions.square().sum(), weight)
    loops = graph.src == graph.dst
    assert (gradient[loops] == 0).all()
    assert (gradient[~loops] != 0).any()


def test_an_injected_node_changes_the_positions_around_it() -> None:
    flow = build_flow(Blend)
    path = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])
    injected = torch.cat([path, torch.tensor([[5, 0], [0, 5]])], 1)

    def positions(edges: Tensor, nodes: int) -> Tensor:
        graph = Graph.from_edge_index(edges, num_nodes=nodes, dtype=torch.float64)
        return flow.initial_state(random_signal(nodes=nodes), graph)[:, CHANNELS:]

    before, after = positions(path, 5), positions(injected, 6)
    moved = (after[:5] - before).abs().amax(1)
    assert moved[:2].min() > 1e-3
    assert after[5].isfinite().all()


def test_edge_weights_of_features_are_those_at_the_beginning() -> None:
    flow, graph, x = build_flow(Blend), random_graph(), random_signal()
    found = flow.edge_weights(flow.initial_state(x, graph), graph)
    assert torch.equal(flow.edge_weights(x, graph), found)
    assert torch.equal(flow.similarity(x, graph), found)
