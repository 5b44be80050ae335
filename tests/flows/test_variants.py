"""Traits of single flows that their equations do not show at a glance."""

import logging
import math

import pytest
import torch
from torch import Tensor

from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import (
    ACMP,
    Flow,
    Frond,
    Grand,
    GrandPP,
    GraphCON,
    Heat,
    HeatPlus,
    Learned,
    PLaplacian,
)
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.operators import Graph
from tests.graphs import CHANNELS, NODES, build_flow, random_graph, random_signal

TIME = torch.tensor(0.0)
RK4 = Solver("rk4", num_steps=3)


@pytest.mark.parametrize(
    ("cls", "options", "start", "factor"),
    [
        (PLaplacian, {"p": 2.0, "modulation": "power"}, {}, 2.0),
        (Learned, {"rate": 0.5}, {"rate": 0.5}, 1.0),
        (Learned, {"rate": 40.0}, {"rate": 40.0}, 1.0),
    ],
)
def test_it_begins_as_grand(
    cls: type[Flow], options: dict[str, object], start: dict[str, object], factor: float
) -> None:
    z, graph = random_signal(), random_graph()
    flow, grand = build_flow(cls, **options), build_flow(Grand, **start)
    flow.attention.load_state_dict(grand.attention.state_dict())
    expected = factor * grand(TIME, z, graph)
    torch.testing.assert_close(flow(TIME, z, graph), expected, rtol=1e-5, atol=1e-9)


def test_frond_of_order_one_is_grand() -> None:
    z, graph = random_signal(), random_graph()
    ends = [RK4.solve(f, z, graph) for f in (build_flow(Frond, order=1.0), build_flow(Grand))]
    assert torch.equal(*ends)


@pytest.mark.parametrize(
    "solver",
    [Solver("dopri5", rtol=1e-3, atol=1e-3), Solver("rk4", num_steps=2, adjoint=True)],
    ids=["adaptive", "adjoint"],
)
def test_frond_refuses_a_solver_without_a_memory(solver: Solver) -> None:
    with pytest.raises(ConfigError, match=r"flow\.order"):
        solver.solve(build_flow(Frond), random_signal(), random_graph())


def test_frond_tells_once_of_the_method_that_gives_way(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    z, solver = random_signal(), Solver("rk4", num_steps=2)
    for _ in range(2):
        solver.solve(build_flow(Frond), z, random_graph())
    assert len(caplog.records) == 1
    assert solver.solve(build_flow(Frond, t_end=0.0), z, random_graph()) is z


def test_the_source_of_grand_pp_keeps_nodes_apart() -> None:
    z, graph, solver = random_signal(), random_graph(), Solver("rk4", num_steps=40)
    ends = [solver.solve(build_flow(GrandPP, t_end=20.0, source=s), z, graph) for s in (1e-6, 1.0)]
    assert ends[0].std(0).max() < 0.01
    assert ends[1].std(0).min() > 0.1


def test_nodes_repel_each_other_where_repulsion_exceeds_the_attention() -> None:
    graph, z = random_graph(weighted=False), random_signal()
    signs = [build_flow(ACMP, repulsion=b).edge_weights(z, graph).sign() for b in (0.0, 2.0)]
    assert (signs[0] > 0).all()
    assert (signs[1] < 0).all()


def test_the_cubic_force_at_its_start_is_stable_in_the_default_steps() -> None:
    """At a depth of 0.1 two steps throw such a state out of range."""
    z, graph, solver = 10 * random_signal(), random_graph(), Solver("implicit_adams", num_steps=2)
    flows = build_flow(ACMP), build_flow(ACMP, well=0.1)
    ends = [solver.solve(flow, z, graph).abs().max() for flow in flows]
    assert ends[0] < 2 * z.abs().max()
    assert not ends[1] < 1e3


def test_graphcon_without_coupling_is_the_damped_oscillator() -> None:
    flow, graph, z = build_flow(GraphCON, t_end=2.0, damping=0.4), random_graph(), random_signal()
    flow.linear.weight.data.zero_()
    found = Solver("rk4", num_steps=100).solve(flow, z, graph)
    rate, frequency = 0.2, math.sqrt(1 - 0.2**2)
    swing = math.cos(2 * frequency) + (1 + rate) / frequency * math.sin(2 * frequency)
    torch.testing.assert_close(found, math.exp(-2 * rate) * swing * z, rtol=1e-6, atol=1e-8)


def test_heat_at_a_node_that_no_edge_reaches_is_finite() -> None:
    graph = random_graph(self_loops=False)
    graph = Graph(graph.src[3:], graph.dst[3:], graph.weight[3:], NODES)
    assert 0 in torch.bincount(graph.dst, minlength=NODES)
    assert build_flow(Heat)(TIME, random_signal(), graph).isfinite().all()


def test_heat_draws_where_it_has_an_attention() -> None:
    graph, state = random_graph(), torch.get_rng_state()
    plain = build_flow(Heat)
    state = torch.get_rng_state()
    plain.resample()
    assert torch.equal(torch.get_rng_state(), state)
    assert plain.prepare(random_signal(), graph) is graph
    frozen = build_flow(Heat, weights="frozen_attention")
    before = frozen.attention.bias
    frozen.resample()
    assert not torch.equal(frozen.attention.bias, before)
    assert list(frozen.parameters()) == []


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("learning_rate", [0.1, 5.0])
def test_the_diffusivity_stays_positive_after_wild_steps(sign: int, learning_rate: float) -> None:
    flow, graph, z = build_flow(HeatPlus).float(), random_graph(), random_signal().float()
    optimizer = torch.optim.Adam(flow.parameters(), lr=learning_rate)
    graph = Graph(graph.src, graph.dst, graph.weight.float(), NODES)
    for _ in range(15):
        optimizer.zero_grad()
        (sign * 1e3 * flow(TIME, z, graph).square().sum()).backward()
        optimizer.step()
    assert 0 < flow.diffusivity.item() < math.inf
    assert abs(flow.diffusivity.item() - 1) > 0.1


def test_gradient_goes_on_where_the_diffusivity_is_small() -> None:
    flow = build_flow(HeatPlus, diffusivity=1e-12)
    (flow(TIME, random_signal(), random_graph()) * random_signal(1)).sum().backward()
    assert flow.raw_diffusivity.grad not in (None, 0)
    assert flow.diffusivity.item() == pytest.approx(1e-12, rel=1e-4)


def test_a_learned_modulation_can_close_edges_between_features_that_differ() -> None:
    flow, graph = build_flow(Learned), random_graph(weighted=False)
    torch.nn.init.zeros_(flow.hidden.weight)
    torch.nn.init.zeros_(flow.hidden.bias)
    flow.hidden.weight.data[0, 2], flow.score.weight.data[0, 0] = 1.0, -60.0
    z = torch.zeros_like(random_signal())
    z[0] = 50.0
    to_others = (graph.src == 0) & (graph.dst != 0)
    modulation = flow.modulation(z, graph)
    assert to_others.any()
    assert (modulation[to_others] < 1e-9).all()
    assert (modulation[(graph.src != 0) & (graph.dst != 0)] == 0.5).all()


@pytest.mark.parametrize(("modulation", "growth"), [("power", 0.0), ("power_without_row_sum", 0.4)])
def test_a_constant_signal_without_softmax(modulation: str, growth: float) -> None:
    """Without row sums it grows: B is twice the norm's floor on every edge, and A sums to 1."""
    z: Tensor = torch.full((NODES, CHANNELS), 3.0, dtype=torch.float64)
    flow = build_flow(PLaplacian, modulation=modulation, gradient_floor=0.04)
    expected = (growth - 1) * z if growth else 0 * z
    torch.testing.assert_close(flow(TIME, z, random_graph()), expected, rtol=1e-9, atol=1e-9)
