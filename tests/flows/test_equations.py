"""Every right-hand side against its equation on dense n x n matrices."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from robust_diffusion.flows import (
    ACMP,
    GREAD,
    Beltrami,
    Blend,
    Dragon,
    Flow,
    Frond,
    Grand,
    GrandPP,
    GraphCON,
    Hang,
    HangQuad,
    Heat,
    HeatPlus,
    Learned,
    MeanCurvature,
    PLaplacian,
    UniformModulation,
    count_evaluations,
)
from robust_diffusion.integrators import solve_fractional
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.operators import Graph
from tests import oracles
from tests.backends import BACKENDS, backend
from tests.graphs import CHANNELS, NODES, build_flow, random_graph, random_signal, random_state

TIME = torch.tensor(0.0)
REACTIONS = ["bspm", "fisher", "allen_cahn", "zeldovich"]


@dataclass
class Case:
    """A flow in a state, and the matrices that its equation is written in."""

    flow: Any
    z: Tensor
    initial: Tensor
    dense: Tensor  # the weights
    graph: Graph

    def parts(self) -> tuple[Tensor, Tensor, Tensor | float]:
        """W_K, W_Q and the bias of the keys."""
        attention = self.flow.attention
        if hasattr(attention, "bias"):
            return attention.weight, attention.weight, attention.bias
        return attention.key.weight, attention.query.weight, 0.0

    def attended(self, at: Tensor | None = None) -> Tensor:
        key, query, bias = self.parts()
        heads = self.flow.attention.heads
        return oracles.attention(self.z if at is None else at, self.dense, key, query, heads, bias)

    def norm(self) -> Tensor:
        flow, ceiling = self.flow, self.flow.gradient_ceiling or math.inf
        kind, floor = flow.gradient_norm, flow.gradient_floor
        return oracles.gradient_norm(self.z, self.attended(), kind, floor, ceiling)


def halves(case: Case, oracle: Callable[..., tuple[Tensor, Tensor]], *rest: Any) -> Tensor:
    return torch.cat(oracle(*case.z.chunk(2, 1), case.dense, *rest), 1)


def hamiltonian(case: Case, energy: Callable[..., Tensor]) -> Tensor:
    z = case.z.clone().requires_grad_()
    return oracles.hamiltonian(energy(z, case.dense, case.flow), z).detach()


EQUATIONS: dict[type[Flow], Callable[[Case], Tensor]] = {
    Heat: lambda c: (
        oracles.heat(c.z, c.dense)
        if c.flow.attention is None
        else oracles.grand(c.z, c.attended(c.initial))
    ),
    HeatPlus: lambda c: EQUATIONS[Heat](c) * c.flow.diffusivity,
    Grand: lambda c: oracles.grand(c.z, c.attended(), c.flow.rate),
    GrandPP: lambda c: oracles.grand_pp(c.z, c.initial, c.attended(), c.flow.source),
    Beltrami: lambda c: oracles.beltrami(c.z, c.dense, c.attended(), c.norm()),
    MeanCurvature: lambda c: oracles.mean_curvature(c.z, c.dense, c.attended(), c.norm()),
    UniformModulation: lambda c: oracles.uniform_modulation(c.z, c.dense, c.attended(), c.norm()),
    PLaplacian: lambda c: oracles.p_laplacian(
        c.z, c.dense, c.attended(), c.norm(), c.flow.p, c.flow.modulation
    ),
    Learned: lambda c: oracles.learned(
        c.z, c.dense, c.attended(), c.flow.rate, c.flow.hidden, c.flow.score
    ),
    GREAD: lambda c: oracles.gread(
        c.z,
        c.attended(),
        c.flow.raw_diffusion_rate.sigmoid(),
        c.flow.raw_reaction_rate.sigmoid(),
        c.flow.reaction,
    ),
    ACMP: lambda c: oracles.acmp(
        c.z,
        c.dense,
        c.attended(),
        c.flow.raw_attraction.sigmoid(),
        c.flow.raw_well.sigmoid(),
        c.flow.repulsion,
    ),
    GraphCON: lambda c: halves(
        c, oracles.graphcon, c.flow.linear.weight, c.flow.frequency, c.flow.damping
    ),
    Hang: lambda c: hamiltonian(c, oracles.hang_energy),
    HangQuad: lambda c: hamiltonian(c, oracles.hang_quad_energy),
    Blend: lambda c: torch.cat(
        oracles.blend(
            *c.z.split([CHANNELS, c.flow.positions], 1), c.dense, *c.parts()[:2], 2, c.flow.rate
        ),
        1,
    ),
}
RELEASED = {"attention": "resampled", "lipschitz": False, "heads": 3}
RESIDUAL = {"gradient_norm": "residual", "gradient_floor": 0.05, "gradient_ceiling": 2.0}
OPTIONS: list[tuple[type[Flow], dict[str, Any]]] = [
    *[(cls, {}) for cls in EQUATIONS],
    *[(cls, {"weights": "frozen_attention"}) for cls in (Heat, HeatPlus)],
    *[(HeatPlus, {"diffusivity": kappa}) for kappa in (1e-4, 60.0)],
    (Grand, {"rate": 0.5, **RELEASED}),
    (Grand, {"heads": 1, "attention": "resampled"}),
    (GrandPP, {"source": 0.6}),
    *[
        (cls, options)
        for cls in (Beltrami, MeanCurvature, UniformModulation)
        for options in (RESIDUAL, RELEASED, RESIDUAL | RELEASED, {"gradient_ceiling": 2.0})
    ],
    *[
        (PLaplacian, {"p": p, "modulation": modulation, **bounds})
        for modulation in ("softmax", "power", "power_without_row_sum")
        for p, bounds in ((1.0, RESIDUAL), (2.5, {"gradient_ceiling": 2.0}), (4.0, {}))
    ],
    (Learned, {"rate": 0.7}),
    *[(GREAD, {"reaction": reaction}) for reaction in REACTIONS],
    (ACMP, {"repulsion": 0.3, "well": 0.3}),
    (GraphCON, {"frequency": 0.7, "damping": 0.3}),
    *[(cls, {"scale": "graph"}) for cls in (Hang, HangQuad)],
    (Blend, {"positions": 3, "rate": 0.5}),
]


@pytest.mark.parametrize(("cls", "options"), OPTIONS, ids=str)
def test_flow_derivative_dense(cls: type[Flow], options: dict[str, Any]) -> None:
    flow, given = build_flow(cls, **options), random_graph()
    for parameter in flow.parameters():
        if not parameter.any():  # what begins at zero hides a part of the equation
            torch.nn.init.normal_(parameter)
    initial = random_signal(1)
    graph, z = flow.prepare(initial, given), random_state(flow)
    dense = oracles.adjacency(given.edge_index, given.weight, NODES)
    expected = EQUATIONS[cls](Case(flow, z, initial, dense, graph))
    for name in BACKENDS:
        with backend(name):
            found = flow(TIME, z, graph)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_frond_dense() -> None:
    """Two steps of length 1/2, the weights of the past written out."""
    flow, graph, z = build_flow(Frond, order=0.6), random_graph(), random_signal()
    case = Case(flow, z, z, oracles.adjacency(graph.edge_index, graph.weight, NODES), graph)

    def slope(at: Tensor) -> Tensor:
        return oracles.grand(at, case.attended(at))

    speed = 0.5**0.6 / math.gamma(1.6)
    first = z + speed * slope(z)
    second = z + speed * ((2**0.6 - 1) * slope(z) + slope(first))
    with count_evaluations(flow) as count:
        found = Solver("rk4", num_steps=2).solve(flow, z, graph)
    assert count.total == 2
    torch.testing.assert_close(found, second)


# Right-hand sides beside numbers of the papers' public implementations, on equal weights: computed
# once, on a path of four nodes with the weights below. Of GREAD and ACMP they are those of the
# random walk's weights, which an attention without keys has; of HANG-quad, the halves in Hamilton's
# order.

PATH = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
WELL = [
    [0.227324357, -0.06958229],
    [-0.319196466, 0.005496342],
    [0.131303241, 0.577610431],
    [-0.299351651, -0.298390908],
]


def wave(*shape: int, at: float = 0.0) -> Tensor:
    """sin(at), sin(at + 1), ... in float64."""
    count = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    return torch.sin(count + at).view(shape)


UNIFORM = {f"attention.{of}.weight": torch.zeros(2, 2) for of in ("key", "query")}
RATES = UNIFORM | {"raw_diffusion_rate": wave(2), "raw_reaction_rate": wave(2, at=1)}
Z, P = wave(4, 2), wave(4, 2, at=2)
PUBLISHED: list[tuple[type[Flow], dict[str, Any], dict[str, Tensor], Tensor, list[list[float]]]] = [
    (
        Hang,
        {"scale": "graph"},
        {
            "inner.weight": wave(2, 4),
            "inner.bias": wave(2, at=1),
            "outer.weight": wave(1, 2, at=2),
            "outer.bias": wave(1, at=3),
        },
        torch.cat([Z, P], 1),
        [
            [0.116614525, 0.05224772, 0.036902133, -0.073766474],
            [0.165973055, 0.061383905, 0.038496999, -0.117967344],
            [0.183142784, 0.04979584, 0.023095411, -0.148109097],
            [0.143242923, 0.035737173, 0.01459501, -0.119051789],
        ],
    ),
    (
        HangQuad,
        {"scale": "graph"},
        {"linear.weight": wave(2, 2), "linear.bias": wave(2, at=1), "ends": wave(2, 2, at=2)},
        torch.cat([Z, P], 1),
        [
            [0.041690429, -0.089014054, -0.340995102, -0.321698512],
            [0.043789728, -0.061412875, -0.324309585, -0.281279726],
            [0.091743151, 0.100905031, -0.562892372, -0.471394338],
            [0.107092872, 0.132367175, -0.040464625, -0.050635656],
        ],
    ),
    (
        GREAD,
        {"reaction": "bspm", "lipschitz": False},
        RATES,
        Z,
        [
            [0.368412979, -0.072394119],
            [-0.50159769, -0.193352725],
            [0.44637974, 0.64113674],
            [-0.285586054, -0.599281905],
        ],
    ),
    (GREAD, {"reaction": "allen_cahn", "lipschitz": False}, RATES, Z, WELL),
    (
        ACMP,
        {"repulsion": 0.0, "lipschitz": False},
        {**UNIFORM, "raw_attraction": wave(2), "raw_well": wave(2, at=1)},
        Z,
        WELL,
    ),
]


def published_flow(cls: type[Flow], options: dict[str, Any], weights: dict[str, Tensor]) -> Flow:
    small = {"heads": 1, "attention_channels": 2} if "lipschitz" in options else {}
    flow = cls(2, **options, **small).double()
    flow.load_state_dict(weights)
    return flow


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case[0].__name__)
def test_flow_derivative_published(case: tuple[Any, ...]) -> None:
    cls, options, weights, state, published = case
    graph = Graph.from_edge_index(PATH, num_nodes=4, dtype=torch.float64)
    found = published_flow(cls, options, weights)(TIME, state, graph)
    torch.testing.assert_close(found, torch.tensor(published).double(), rtol=0, atol=1e-6)


def test_graphcon_acceleration() -> None:
    flow = published_flow(
        GraphCON, {"frequency": 0.7, "damping": 0.4}, {"linear.weight": wave(2, 2)}
    )
    graph = Graph.from_edge_index(PATH, num_nodes=4, dtype=torch.float64)
    found = flow(TIME, flow.initial_state(Z.abs(), graph), graph)[:, 2:]
    published = [
        [0.402515537, -0.52056509],
        [-0.402605625, 0.449986363],
        [-0.298236954, -0.35650247],
        [0.298478917, -0.213107281],
    ]
    torch.testing.assert_close(found, torch.tensor(published).double(), rtol=0, atol=1e-6)


def test_dragon_dense() -> None:
    """Two steps of length 1/2, the weights of the past written out."""
    flow, graph, z = build_flow(Dragon, order=(0.6, 1.0)), random_graph(), random_signal()
    case = Case(flow, z, z, oracles.adjacency(graph.edge_index, graph.weight, NODES), graph)
    with torch.no_grad():
        flow.theta.copy_(torch.tensor([0.0, 1.0]))

    def slope(at: Tensor) -> Tensor:
        return oracles.grand(at, case.attended(at))

    low = 1 / (1 + math.e)
    now = low * 2**0.6 + (1 - low) * 2
    first = z + slope(z) / now
    past = -0.6 * low * 2**0.6 - (1 - low) * 2
    second = z + (slope(first) - past * (first - z)) / now
    found = Solver("rk4", num_steps=2).solve(flow, z, graph)
    torch.testing.assert_close(found, second)
    found.sum().backward()
    assert flow.theta.grad is not None
    assert flow.theta.grad.abs().sum() > 0


def test_frond_predictor() -> None:
    """Four steps of 1/2; FROND's code takes one for each of the times that it is given."""
    found = solve_fractional(lambda t, y: y.sin() - 0.3 * y, Z, 2.0, 0.7, 4)
    published = [
        [0.0, 1.787675797],
        [1.839269548, 0.475502574],
        [-1.712673022, -1.873145905],
        [-0.888300947, 1.604710336],
    ]
    torch.testing.assert_close(found, torch.tensor(published).double(), rtol=0, atol=1e-6)
