"""Gradients inside of gradients, for every flow of an energy."""

import pytest
import torch
from torch import Tensor

from robust_diffusion.flows import Hang, HangQuad
from robust_diffusion.flows.hamiltonian import HamiltonianFlow
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.operators import Graph
from tests.backends import FAST, backend
from tests.graphs import build_flow, random_graph, random_signal, random_state, with_weight

TIME = torch.tensor(0.0)
FLOWS = [Hang, HangQuad]
CASES = [(Hang, "graph"), (HangQuad, "node")]


class Spring(HamiltonianFlow):
    """H = (|p|^2 + |q|^2) / 2, whose path is a circle."""

    def edge_weights(self, z: Tensor, graph: Graph) -> Tensor:
        return graph.weight

    def energy(self, q: Tensor, p: Tensor, graph: Graph) -> Tensor:
        return (q.square().sum() + p.square().sum()) / 2


def test_a_spring_swings() -> None:
    z, turn = random_signal(), torch.tensor(2.0, dtype=torch.float64)
    found = Solver("rk4", num_steps=50).solve(build_flow(Spring, t_end=2.0), z, random_graph())
    torch.testing.assert_close(found, (turn.cos() + turn.sin()) * z, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("cls", "scale"), CASES)
def test_the_energy_is_conserved(cls: type[HamiltonianFlow], scale: str) -> None:
    flow, graph = build_flow(cls, scale=scale), random_graph()
    start = random_state(flow)
    end = Solver("rk4", num_steps=100).integrate(lambda t, x: flow(t, x, graph), start, 2.0)
    before, after = (flow.energy(*state.chunk(2, 1), graph).item() for state in (start, end))
    assert (end - start).norm() > 0.1
    # A leaky ReLU has a bend, which costs an order of the method where a state crosses it.
    assert after == pytest.approx(before, rel=1e-3 if cls is HangQuad else 1e-5)


@pytest.mark.parametrize("cls", FLOWS)
def test_gradients_by_parameters_equal_finite_differences(cls: type[HamiltonianFlow]) -> None:
    flow, graph = build_flow(cls), random_graph()
    state = random_state(flow)
    assert torch.autograd.gradcheck(
        lambda *_: flow(TIME, state, graph).tanh().sum(0), tuple(flow.parameters())
    )


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize(("cls", "scale"), CASES)
def test_every_backend_gives_the_gradients_of_the_reference(
    cls: type[HamiltonianFlow], scale: str, name: str
) -> None:
    found = []
    for each in ("reference", name):
        flow, graph = build_flow(cls, scale=scale), random_graph()
        state, weight = random_state(flow).requires_grad_(), graph.weight.clone().requires_grad_()
        with backend(each):
            out = flow(TIME, state, with_weight(graph, weight))
            found.append(torch.autograd.grad(out.tanh().sum(), (state, weight, *flow.parameters())))
    for fast, reference in zip(*found, strict=True):
        assert reference.abs().max() > 1e-8
        torch.testing.assert_close(fast, reference)


@pytest.mark.parametrize("cls", FLOWS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_nothing_changes_where_no_gradient_is_asked_for(cls: type[Hang], mode: type) -> None:
    flow, z = build_flow(cls), random_signal()
    edge_index = random_graph().edge_index
    solver = Solver("rk4", num_steps=2)
    ends = []
    for context in (torch.enable_grad, mode):
        with context():
            graph = Graph.from_edge_index(edge_index, num_nodes=len(z), dtype=z.dtype)
            ends.append(solver.solve(flow, z * 1.0, graph))
    assert torch.equal(*(end.detach().clone() for end in ends))
    assert not ends[1].requires_grad
    assert all(p.grad is None for p in flow.parameters())


def test_the_energy_by_nodes_takes_the_same_path_at_another_speed() -> None:
    whole, graph, z = build_flow(Hang, scale="graph"), random_graph(), random_signal()
    speed = whole.energy(z, z, graph).item()
    by_node = build_flow(Hang, scale="node", t_end=1 / speed)
    solver = Solver("rk4", num_steps=50)
    found, expected = (solver.solve(flow, z, graph) for flow in (by_node, whole))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert speed != pytest.approx(1, rel=0.1)
