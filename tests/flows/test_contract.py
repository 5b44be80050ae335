"""What holds for every flow."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.autograd import gradcheck

from robust_diffusion import flows
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows.attention import TrainedAttention
from robust_diffusion.flows.base import ModulatedFlow, PowerModulated
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.operators import Graph, row_sum, spmm
from tests.backends import BACKENDS, backend
from tests.graphs import (
    ATTENTION_FLOWS,
    CHANNELS,
    MODULATED_FLOWS,
    NODES,
    SUCCESSORS,
    SourceFlow,
    build_flow,
    random_graph,
    random_signal,
    random_state,
    with_weight,
    without_type_checks,
)

TIME = torch.tensor(0.0)
P_LAPLACIANS = ["softmax", "power", "power_without_row_sum"]
VARIANTS: list[tuple[type[flows.Flow], dict[str, str]]] = [
    *[
        (cls, {"weights": w})
        for cls in (flows.Heat, flows.HeatPlus)
        for w in ("uniform", "frozen_attention")
    ],
    *[(cls, {"attention": kind}) for cls in ATTENTION_FLOWS for kind in ("trained", "resampled")],
    *[(cls, {"gradient_norm": "residual"}) for cls in MODULATED_FLOWS],
]
# Their rows sum to anything, so that neither a maximum principle nor a bound holds.
UNBOUNDED = [
    (flows.PLaplacian, {"modulation": modulation, "gradient_norm": norm})
    for modulation in P_LAPLACIANS[1:]
    for norm in ("edges", "residual")
]
REACTIONS = ["bspm", "fisher", "allen_cahn", "zeldovich"]
OPTIONS: list[tuple[type[flows.Flow], dict[str, str]]] = [
    *[(cls, {}) for cls in SUCCESSORS],
    *[(flows.GREAD, {"reaction": reaction}) for reaction in REACTIONS[1:]],
    *[(cls, {"scale": "graph"}) for cls in (flows.Hang, flows.HangQuad)],
]
"""Of the flows that followed, which neither keep a constant signal nor stay within extremes."""
RESAMPLED: list[tuple[type[flows.Flow], dict[str, str]]] = [
    (cls, {"attention": "resampled"})
    for cls in (flows.ACMP, flows.GREAD, flows.Blend, flows.GrandPP)
]


def name(variant: tuple[type[flows.Flow], dict[str, str]]) -> str:
    return "-".join([variant[0].__name__, *variant[1].values()])


@pytest.fixture(params=VARIANTS, ids=name)
def flow(request: pytest.FixtureRequest) -> flows.Flow:
    cls, options = request.param
    return build_flow(cls, **options)


@pytest.fixture(params=[*VARIANTS, *UNBOUNDED, *OPTIONS, *RESAMPLED], ids=name)
def any_flow(request: pytest.FixtureRequest) -> flows.Flow:
    cls, options = request.param
    return build_flow(cls, **options)


def test_flow_constant_signal(flow: flows.Flow) -> None:
    z = torch.tensor([3.0, -2.0, 0.0, 1e3, 1e-3], dtype=torch.float64).expand(NODES, CHANNELS)
    torch.testing.assert_close(flow(TIME, z, random_graph()), torch.zeros_like(z))


def test_flow_maximum_principle(flow: flows.Flow) -> None:
    z, graph, solver = 3 * random_signal(), random_graph(), Solver("rk4", num_steps=20)
    end = solver.integrate(lambda t, x: flow(t, x, graph), z, 4.0).detach()
    assert (end.max(0).values <= z.max(0).values + 1e-6).all()
    assert (end.min(0).values >= z.min(0).values - 1e-6).all()
    assert end.std(0).sum() < z.std(0).sum()


def test_flow_gradcheck(any_flow: flows.Flow) -> None:
    graph = any_flow.prepare(random_signal(), random_graph())
    z, weight = random_state(any_flow).requires_grad_(), graph.weight.clone().requires_grad_()
    assert gradcheck(lambda x, w: any_flow(TIME, x, replace(graph, weight=w)), (z, weight))


def test_flow_edge_weights(flow: flows.Flow) -> None:
    z, graph = random_signal(), random_graph(weighted=False)
    weights = flow.edge_weights(z, graph)
    totals = torch.zeros(NODES, dtype=torch.float64).index_add(0, graph.dst, weights)
    assert (weights > 0).all()
    assert (totals <= 1 + 1e-12).all()


def test_flow_gradients_of_constant_signal(any_flow: flows.Flow) -> None:
    weight = random_graph().weight.clone().requires_grad_()
    z = torch.ones(NODES, CHANNELS, dtype=torch.float64, requires_grad=True)
    graph = any_flow.prepare(z, with_weight(random_graph(), weight))
    out = any_flow(TIME, any_flow.initial_state(z, graph), graph)
    (out * random_state(any_flow, 1)).sum().backward()
    for tensor in (z, weight, *any_flow.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


@pytest.mark.parametrize(
    ("cls", "key", "value"),
    [
        *[(cls, "t_end", -0.5) for cls in (flows.Heat, flows.Frond)],
        (flows.Beltrami, "gradient_ceiling", 0.01),  # the floor
        (flows.Grand, "heads", 0),
        (flows.Grand, "attention_channels", 7),  # no multiple of the heads
        (flows.Beltrami, "attention", "frozen"),
        (flows.PLaplacian, "p", 0.5),
        (flows.HeatPlus, "diffusivity", 0.0),
        (flows.ACMP, "well", 1.0),
        (flows.Frond, "order", 1.1),
        (flows.Dragon, "order", ()),
    ],
)
def test_flow_errors(cls: type[flows.Flow], key: str, value: object) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=re.escape(f"flow.{key}={value}")):
        cls(CHANNELS, **{key: value})


@pytest.mark.parametrize("cls", [flows.Heat, flows.Grand, *MODULATED_FLOWS])
def test_flow_similarity(cls: type[flows.Flow]) -> None:
    flow, z, graph = build_flow(cls), random_signal(), random_graph()
    similarity, weights = flow.similarity(z, graph), flow.edge_weights(z, graph)
    assert torch.equal(similarity, weights) == (cls not in MODULATED_FLOWS)
    assert cls is flows.Heat or torch.equal(similarity, flow.attention(z, graph))


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        *[(cls, {}) for cls in (flows.Grand, flows.Beltrami, flows.GREAD, flows.Hang, flows.Frond)],
        (flows.PLaplacian, {"modulation": "power"}),
        (flows.Heat, {"weights": "frozen_attention"}),
        (SourceFlow, {}),
    ],
)
def test_flow_gradients_of_absent_edges(cls: type[flows.Flow], options: Any) -> None:
    nodes, candidates, generator = 80, 30, torch.Generator().manual_seed(0)
    there = torch.rand(nodes, nodes, generator=generator) < 0.3
    loops = torch.eye(nodes, dtype=torch.bool)
    present, absent = (there & ~loops).nonzero().T, (~there & ~loops).nonzero().T
    absent = absent[:, torch.randperm(absent.size(1), generator=generator)[:candidates]]
    edge_index = torch.cat([present, absent], 1)
    weight = torch.cat([torch.ones(present.size(1)), torch.zeros(candidates)]).double()
    labels = torch.randint(CHANNELS, (nodes,), generator=generator)
    z = nn.functional.one_hot(labels, CHANNELS) + 0.3 * random_signal(nodes=nodes)
    flow, solver = build_flow(cls, t_end=0.5, **options), Solver("rk4", num_steps=2)

    def loss(weight: Tensor) -> Tensor:
        graph = Graph.from_edge_index(edge_index, weight, num_nodes=nodes)
        return nn.functional.cross_entropy(solver.solve(flow, z, graph), labels)

    leaf = weight.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf)
    for size in (1e-3, 1.0):
        added = weight + size * torch.eye(weight.numel(), dtype=weight.dtype)[-candidates:]
        with torch.no_grad(), without_type_checks():
            gains = [loss(each).item() for each in added]
        assert spearmanr(gradient[-candidates:], gains).statistic > 0.99


@pytest.mark.parametrize("cls", [flows.Beltrami, flows.MeanCurvature, flows.PLaplacian])
def test_flow_edge_modulation(cls: type[flows.Flow]) -> None:
    z, graph = random_signal(), random_graph()

    def modulation(flow: flows.Flow, graph: Graph) -> Tensor:
        return flow.edge_modulation(z, flow.attention(z, graph), graph)

    share = row_sum(modulation(build_flow(cls), graph) * graph.weight.clamp_max(1), graph)
    torch.testing.assert_close(share, torch.ones_like(share))
    plain = with_weight(graph, torch.ones_like(graph.weight))
    degree = row_sum(plain.weight, plain)[plain.dst]
    assert (modulation(build_flow(cls), plain) * degree - 1).abs().max() > 1e-3
    uniform = modulation(build_flow(flows.UniformModulation), plain)
    torch.testing.assert_close(uniform * degree, torch.ones_like(degree))


@pytest.mark.parametrize("cls", [flows.Heat, flows.Beltrami])
def test_flow_with_a_tensor_attribute(cls: type[flows.Flow]) -> None:
    flow = build_flow(cls)
    with pytest.raises(ConfigError, match=rf"{cls.__name__}\.initial: .*carrying\(initial="):
        flow.initial = random_signal()
    flow.register_buffer("constant", torch.ones(2))
    flow.constant = torch.zeros(2)
    flow.speed = nn.Parameter(torch.ones(()))
    assert {"constant", "speed"} <= flow.state_dict().keys()


class Halved:
    def scores(self, z: Tensor, attention: Tensor, graph: Graph) -> Tensor:
        return 0.5 * super().scores(z, attention, graph)  # type: ignore[misc]


class HalvedBeltrami(Halved, flows.Beltrami):  # type: ignore[misc]
    pass


class DoubledModulation(flows.PLaplacian):
    def edge_modulation(self, z: Tensor, attention: Tensor, graph: Graph) -> Tensor:
        return 2 * super().edge_modulation(z, attention, graph)


class Uniform(TrainedAttention):
    def forward(self, z: Tensor, graph: Graph) -> Tensor:
        return flows.Heat.edge_weights(self, z, graph)  # type: ignore[arg-type]


class WithoutWeights(nn.Module):
    def forward(self, z: Tensor, graph: Graph) -> Tensor:
        return flows.Heat.edge_weights(self, z, graph)  # type: ignore[arg-type]


class UniformBeltrami(flows.Beltrami):
    def __init__(self, channels: int, **options: Any) -> None:
        super().__init__(channels, **options)
        self.attention = Uniform(channels, heads=1, attention_channels=1)


class WithoutWeightsBeltrami(flows.Beltrami):
    def __init__(self, channels: int, **options: Any) -> None:
        super().__init__(channels, **options)
        self.attention = WithoutWeights()


class LearnedExponent(flows.Beltrami):
    def __init__(self, channels: int, **options: Any) -> None:
        super().__init__(channels, **options)
        self.left = -1.0
        self.right = nn.Parameter(torch.tensor(-0.5))

    @property
    def exponents(self) -> Any:
        return self.left, self.right


class LearnedExponentAsWritten(LearnedExponent):
    forward = ModulatedFlow.forward


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("cls", "ignored"),
    [
        (HalvedBeltrami, "scores"),
        (DoubledModulation, "edge_modulation"),
        (UniformBeltrami, "attention"),
        (WithoutWeightsBeltrami, "attention"),
        (LearnedExponent, "learned numbers"),
    ],
)
def test_power_modulated_overrides(cls: type[PowerModulated], ignored: str, name: str) -> None:
    z, graph = random_signal(), random_graph()
    as_written: type[PowerModulated] = type("AsWritten", (cls,), {"forward": ModulatedFlow.forward})
    with backend(name):
        with pytest.raises(ConfigError, match=f"^{cls.__name__}: .* its {ignored}; add `forward ="):
            build_flow(cls)(TIME, z, graph)
        flow = build_flow(as_written)
        carried = flow.edge_weights(z, graph)
        found = flow(TIME, z, graph)
        torch.testing.assert_close(
            found, spmm(carried, z, graph) - row_sum(carried, graph)[:, None] * z
        )
        plain = flows.PLaplacian if issubclass(cls, flows.PLaplacian) else flows.Beltrami
        assert not torch.allclose(found, build_flow(plain)(TIME, z, graph))


def test_flow_learned_exponent() -> None:
    flow, z, graph, found = (
        build_flow(LearnedExponentAsWritten),
        random_signal(),
        random_graph(),
        [],
    )
    for name in ("compiled", "torch"):
        with backend(name):
            out = flow(TIME, z, graph)
            found.append((out, *torch.autograd.grad(out.square().sum(), flow.right)))
    torch.testing.assert_close(*found)
    assert found[0][1].abs() > 1e-6


@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [
        (flows.Grand, "rate", 1.0),
        (flows.GraphCON, "frequency", 1.0),
        (flows.GraphCON, "damping", 1.0),
        (LearnedExponentAsWritten, "left", 0.0),
    ],
)
def test_flow_learned_number(cls: type[flows.Flow], name: str, value: float) -> None:
    flow, z, graph = build_flow(cls), random_signal(), random_graph()
    setattr(flow, name, nn.Parameter(torch.tensor(value)))
    flow(TIME, flow.initial_state(z, graph), graph).square().sum().backward()
    assert getattr(flow, name).grad.abs() > 1e-6
