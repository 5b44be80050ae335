"""Traits of single flows that their equations do not show at a glance."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck

from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Blend, Dragon, Flow, Frond, Grand, Hang, HangQuad, Heat, HeatPlus
from robust_diffusion.flows.hang import HamiltonianFlow
from robust_diffusion.integrators.solver import Method, Solver
from robust_diffusion.operators import Graph
from tests import oracles
from tests.backends import BACKENDS, backend
from tests.graphs import (
    CHANNELS,
    NODES,
    build_flow,
    random_graph,
    random_signal,
    random_state,
    with_weight,
)
from tests.integrators.problems import by_torchdiffeq
from tests.pairs import pairs

TIME = torch.tensor(0.0)


FIXED = "a solver of fixed steps, such as rk4, instead of dopri5"


@pytest.mark.parametrize(
    ("solver", "remedy"),
    [
        (Solver("dopri5"), FIXED),
        (Solver("rk4", num_steps=2, adjoint=True), "solver.adjoint=false"),
        (Solver("dopri5", adjoint=True), f"{FIXED} and solver.adjoint=false"),
    ],
    ids=["adaptive", "adjoint", "both"],
)
@pytest.mark.parametrize("cls", [Frond, Dragon])
def test_frond_solvers(cls: type[Flow], solver: Solver, remedy: str) -> None:
    with pytest.raises(ConfigError, match=rf"flow\.order=.*; use {remedy}$"):
        solver.solve(build_flow(cls), random_signal(), random_graph())


@pytest.mark.parametrize(("sign", "learning_rate"), [(1, 5.0), (-1, 0.1)])
def test_flow_diffusivity_after_steps(sign: int, learning_rate: float) -> None:
    flow, graph, z = build_flow(HeatPlus).float(), random_graph(), random_signal().float()
    optimizer = torch.optim.Adam(flow.parameters(), lr=learning_rate)
    graph = with_weight(graph, graph.weight.float())
    for _ in range(15):
        optimizer.zero_grad()
        (sign * 1e3 * flow(TIME, z, graph).square().sum()).backward()
        optimizer.step()
    assert 0 < flow.diffusivity.item() < math.inf
    assert abs(flow.diffusivity.item() - 1) > 0.1


def test_flow_random_walk_step_dense() -> None:
    flow, graph, x = build_flow(Blend, t_end=0.3, positions=4), random_graph(), random_signal()
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    ends = flow.attention.key.weight, flow.attention.query.weight
    u = oracles.return_probabilities(dense, 4) @ flow.encode.weight.T + flow.encode.bias
    state = flow.initial_state(x, graph)
    assert state.shape == (NODES, CHANNELS + 4)
    torch.testing.assert_close(state, torch.cat([x, u], 1))
    assert torch.equal(flow.edge_weights(x, graph), flow.edge_weights(state, graph))
    found = Solver("euler", num_steps=1).solve(flow, x, graph)
    expected = x + 0.3 * oracles.blend(x, u, dense, *ends, 2, 1.0)[0]
    torch.testing.assert_close(found, expected)


def test_flow_random_walk_gradcheck() -> None:
    """Through the positions too, which the right-hand side alone does not see."""
    flow, graph = build_flow(Blend, positions=3), random_graph()
    x, weight = random_signal().requires_grad_(), graph.weight.clone().requires_grad_()
    solver = Solver("rk4", num_steps=1)
    assert gradcheck(lambda x, w: solver.solve(flow, x, replace(graph, weight=w)), (x, weight))


ENERGIES = {Hang: oracles.hang_energy, HangQuad: oracles.hang_quad_energy}
CASES = [(cls, scale) for cls in ENERGIES for scale in ("graph", "node")]


@pytest.mark.parametrize(("cls", "scale"), CASES)
def test_hang_energy(cls: type[HamiltonianFlow], scale: str) -> None:
    flow, graph = build_flow(cls, scale=scale), random_graph()
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    start = random_state(flow)
    end = Solver("rk4", num_steps=100).integrate(lambda t, x: flow(t, x, graph), start, 2.0)
    before, after = (ENERGIES[cls](state, dense, flow).item() for state in (start, end))
    assert (end - start).norm() > 0.1
    # A leaky ReLU has a bend, which costs an order of the method where a state crosses it.
    assert after == pytest.approx(before, rel=1e-3 if cls is HangQuad else 1e-5)


@pytest.mark.parametrize(
    ("cls_scale", "symmetric", "name"), pairs(CASES, [False, True], list(BACKENDS))
)
def test_hang_second_derivatives(
    cls_scale: tuple[type[HamiltonianFlow], str], symmetric: bool, name: str
) -> None:
    """By the state, the edge weights, which are known to be 1 if symmetric, and parameters."""
    cls, scale = cls_scale
    flow, given = build_flow(cls, scale=scale), random_graph(symmetric=symmetric)
    state, weight = random_state(flow).requires_grad_(), given.weight.clone().requires_grad_()
    graph, sources = with_weight(given, weight), (state, weight, *flow.parameters())
    if symmetric:
        edges, dtype = given.edge_index, torch.float64
        graph = Graph.from_edge_index(edges, num_nodes=NODES, dtype=dtype, self_loops=False)
        sources, weight = (state, *flow.parameters()), graph.full_weight
    dense = torch.zeros(NODES, NODES, dtype=torch.float64)
    dense = dense.index_put((graph.dst, graph.src), weight)
    with backend(name):
        out = flow(TIME, state, graph)
        found = torch.autograd.grad(out.tanh().sum(), sources)
    expected = oracles.hamiltonian(ENERGIES[cls](state, dense, flow), state)
    torch.testing.assert_close(out, expected)
    for by_hand, by_autograd in zip(
        found,
        torch.autograd.grad(expected.tanh().sum(), sources, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(by_hand, by_autograd, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", ["euler", "heun3", "rk4"])
@pytest.mark.parametrize("scale", ["graph", "node"])
def test_hang_frozen_weights(scale: str, method: Method) -> None:
    flow, graph, z = build_flow(Hang, scale=scale, t_end=1.5), random_graph(), random_signal()
    weight, found = graph.weight.clone().requires_grad_(), []
    z.requires_grad_()
    graph, solver = replace(graph, weight=weight), Solver(method, num_steps=2)
    whole = solver.integrate(partial(flow, graph=graph), flow.initial_state(z, graph), 1.5)
    for end in (solver.solve(flow, z, graph), flow.features(whole)):
        by = torch.autograd.grad(end.tanh().sum(), (z, weight, *flow.parameters()))
        found.append((end, *by))
    for narrowed, plain in zip(*found, strict=True):
        torch.testing.assert_close(narrowed, plain)


class Damped(Hang):
    def forward(self, t: Tensor, z: Tensor, graph: Graph) -> Tensor:
        return super().forward(t, z, graph) - 0.5 * z


class AtRest(Hang):
    def initial_state(self, z: Tensor, graph: Graph) -> Tensor:
        return torch.cat([z, torch.zeros_like(z)], 1)


class Momentum(Hang):
    def features(self, state: Tensor) -> Tensor:
        return state[:, self.channels :]


@pytest.mark.parametrize("cls", [Damped, AtRest, Momentum, type("Inherited", (Damped,), {})])
def test_flow_subclasses(cls: type[Hang]) -> None:
    problem, solver = (random_signal(), random_graph()), Solver("rk4", num_steps=2)
    with pytest.raises(ConfigError, match=f"^{cls.__name__}: .*add `narrowed = Flow.narrowed`"):
        solver.solve(build_flow(cls), *problem)
    flow = build_flow(type("Whole", (cls,), {"narrowed": Flow.narrowed}))
    end = solver.solve(flow, *problem)
    with by_torchdiffeq():
        torch.testing.assert_close(end, solver.solve(flow, *problem))


@pytest.mark.parametrize("cls", ENERGIES)
def test_hang_without_gradients(cls: type[Flow]) -> None:
    flow, solver, found = build_flow(cls), Solver("rk4", num_steps=2), []
    edge_index = random_graph().edge_index
    for context in (torch.enable_grad, torch.inference_mode):
        with context():
            graph = Graph.from_edge_index(edge_index, num_nodes=NODES, dtype=torch.float64)
            found.append(solver.solve(flow, random_signal(), graph).clone())
    assert torch.equal(*found)


def test_heat_attention() -> None:
    frozen, plain = build_flow(Heat, weights="frozen_attention"), build_flow(Heat)
    before, state = frozen.attention.bias, torch.get_rng_state()
    plain.resample()
    assert torch.equal(torch.get_rng_state(), state)
    frozen.resample()
    assert not torch.equal(frozen.attention.bias, before)


def test_heat_custom_attention() -> None:
    class Ones(nn.Module):
        def forward(self, z: Tensor, graph: Graph) -> Tensor:
            return torch.ones_like(graph.weight)

    flow = build_flow(Grand)
    flow.attention = Ones()
    flow.resample()
