"""The fused kernels against the equations as they are written, which `torch` evaluates."""

from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from itertools import cycle, product
from typing import Any

import pytest
import torch
from torch import Tensor

from robust_diffusion.errors import DataError
from robust_diffusion.flows import (
    Beltrami,
    Flow,
    Grand,
    Heat,
    HeatPlus,
    MeanCurvature,
    PLaplacian,
    UniformModulation,
)
from robust_diffusion.operators import (
    Graph,
    Modulation,
    kernels_for,
    row_softmax,
)
from tests.backends import BACKENDS, backend
from tests.graphs import (
    ALL_FLOWS,
    build_flow,
    random_graph,
    random_state,
    with_weight,
    without_type_checks,
)
from tests.pairs import pairs

TIME = torch.tensor(0.0)
NODES = 70  # more than the rows that the C++ code takes at a time
HEADS = [1, 2, 3, 4, 8]  # of 3 there is no compiled kernel
WIDTHS = [7, 16, 65, 100]  # one part of the channels, whole and not; several, of all sizes
GRAPHS = ["weighted", "unweighted", "bare"]
ATTENTIONS = ["trained", "resampled"]
TINY_GRAPHS = ["loops", "one", "none"]

FLOWS: list[tuple[type[Flow], dict[str, Any]]] = [
    (Beltrami, {}),
    (MeanCurvature, {}),
    *[(PLaplacian, {"p": p}) for p in (1.0, 3.0, 4.0)],
]
# Reached by some nodes and channels, not by others.
FLOORS = {"edges": 0.05, "residual": 0.002}
CEILINGS = {"edges": 1.3, "residual": 0.02}
CASES = [
    (
        cls,
        options
        | {
            "gradient_norm": norm,
            "gradient_floor": FLOORS[norm],
            "gradient_ceiling": CEILINGS[norm] if bounded else None,
            "attention": attention,
            "lipschitz": lipschitz,
            "heads": heads,
            "attention_channels": heads * (7 + lipschitz),
        },
        width,
        kind,
    )
    for (cls, options), heads, width, kind, norm, bounded, attention, lipschitz in pairs(
        FLOWS, HEADS, WIDTHS, GRAPHS, list(CEILINGS), [False, True], ATTENTIONS, [False, True]
    )
]

EXACT = 1e-12
ROUNDED = 2e-6
SMALLEST_SCALE = 1e-2
"""Of a tensor that would be all zeros without rounding, the size that errors are compared with."""


def irregular_edges() -> tuple[Tensor, Tensor]:
    """A hub of many edges, node 1 alone, edges listed twice, and weights, some of them 0."""
    generator = torch.Generator().manual_seed(0)
    hub = torch.stack([torch.arange(2, NODES), torch.zeros(NODES - 2, dtype=torch.long)])
    edges = torch.randint(2, NODES, (2, 120), generator=generator)
    edge_index = torch.cat([edges, hub, hub.flip(0), edges[:, :9], torch.ones(2, 1).long()], 1)
    weight = 0.1 + torch.rand(edge_index.size(1), generator=generator, dtype=torch.float64)
    weight[::6] = 0.0
    weight[edge_index[1] == 5] = 0.0  # but for its loop
    weight[-1] = 0.0  # the loop of node 1
    return edge_index, weight


def small_hub() -> tuple[Tensor, Tensor]:
    """Five nodes: a hub, an edge listed twice, a node that no edge reaches; weights of 0 to 1.6."""
    hub = torch.stack([torch.arange(2, 5), torch.zeros(3, dtype=torch.long)])
    edge_index = torch.cat([hub, hub.flip(0), hub[:, :2], torch.tensor([[2], [3]])], 1)
    weight = torch.linspace(0.1, 1.6, edge_index.size(1))
    weight[1::4] = 0.0
    return edge_index, weight


def inputs_of(kind: str, dtype: torch.dtype, device: str = "cpu") -> tuple[Graph, Tensor | None]:
    """A graph, and the weights as the caller knows them."""
    if kind in GRAPHS:
        (edge_index, weight), nodes = irregular_edges(), NODES
    elif "hub" in kind:
        (edge_index, weight), nodes = small_hub(), 5
    else:
        edge_index, weight = torch.zeros(2, 0, dtype=torch.long), torch.zeros(0)
        nodes = {"loops": 5, "one": 1, "none": 3}[kind]
    edge_index = edge_index.to(device)
    if "unweighted" in kind:
        return Graph.from_edge_index(edge_index, num_nodes=nodes, dtype=dtype), None
    leaf = weight.to(device, dtype).requires_grad_()
    self_loops = kind not in ("bare", "none", "hub")
    return Graph.from_edge_index(edge_index, leaf, num_nodes=nodes, self_loops=self_loops), leaf


def signal(nodes: int, channels: int) -> Tensor:
    """Features of about unit length, the same numbers in both precisions."""
    generator = torch.Generator().manual_seed(1)
    return (torch.randn(nodes, channels, generator=generator) / channels**0.5).double()


def small_flow(cls: type[Flow], channels: int, **options: Any) -> Flow:
    torch.manual_seed(2)
    if not issubclass(cls, Heat):
        options = {"attention_channels": 24} | options
    return cls(channels, **options).eval()


def evaluate(flow: Flow, kind: str, dtype: torch.dtype, device: str = "cpu") -> dict[str, Tensor]:
    """The derivative of the state, and the gradients of a sum over it, all in float64."""
    flow = deepcopy(flow).to(device, dtype)
    graph, weight = inputs_of(kind, dtype, device)
    z = signal(graph.num_nodes, flow.channels).to(device, dtype).requires_grad_()
    out = flow(TIME, z, flow.prepare(z, graph))
    (out * signal(*out.T.shape).T.to(out)).sum().backward()
    values = {"out": out.detach(), "d_z": z.grad, **gradient_of_weights(weight)}
    values |= {f"d_{key}": parameter.grad for key, parameter in flow.named_parameters()}
    return {name: value.double().cpu() for name, value in values.items()}


def gradient_of_weights(weight: Tensor | None) -> dict[str, Tensor]:
    """Of edges of weight 0 the logarithm, or so: they may have e^70 times the say of others."""
    if weight is None or weight.grad is None:
        return {}
    there = weight.detach() > 0
    return {"d_weight": weight.grad[there], "d_absent": weight.grad[~there].double().asinh()}


def distance(actual: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest entry."""
    if expected.numel() == 0:
        return 0.0
    scale = expected.abs().max().clamp_min(SMALLEST_SCALE)
    return ((actual - expected).abs().max() / scale).item()


def assert_backend_right(
    name: str, compute: Callable[[torch.dtype], dict[str, Tensor]], *, rounded: float = ROUNDED
) -> None:
    """What `torch` computes: in float64 to rounding, in float32 about as near the truth."""
    # Checking shapes takes longer than what is checked, so it is left to one of the four.
    with backend("torch"), without_type_checks():
        truth, single = compute(torch.float64), compute(torch.float32)
    for dtype, checks in ((torch.float64, nullcontext()), (torch.float32, without_type_checks())):
        with backend(name), checks:
            actual = compute(dtype)
        assert actual.keys() == truth.keys()
        for key, expected in truth.items():
            error, own = (distance(values[key], expected) for values in (actual, single))
            allowed = EXACT if dtype == torch.float64 else max(rounded, 8 * own)
            assert error <= allowed, f"{key}, {dtype}: {error:.1e}, allowed {allowed:.1e}"


def on_both(compute: Callable[[], list[Tensor]]) -> list[tuple[Tensor, Tensor]]:
    found = []
    for each in BACKENDS:
        with backend(each):
            found.append(compute())
    return list(zip(*found, strict=True))


SEVERAL: list[tuple[type[Flow], dict[str, Any]]] = [
    *[(cls, {"heads": heads}) for cls in (Grand, UniformModulation) for heads in HEADS],
    (Grand, {"attention": "resampled"}),
    (Heat, {"weights": "uniform"}),
    (HeatPlus, {"weights": "frozen_attention"}),
    (PLaplacian, {"modulation": "power"}),
]
"""Flows of several operators."""
TINY = [(Beltrami, {}), (PLaplacian, {"gradient_norm": "residual"}), (Grand, {})]
CASES += [(*of, 16, kind) for of, kind in zip(SEVERAL, cycle(GRAPHS))]
CASES += [(*of, 7, kind) for of, kind in product(TINY, TINY_GRAPHS)]


@pytest.mark.parametrize(("cls", "options", "width", "kind"), CASES)
def test_flows_and_their_gradients(
    cls: type[Flow], options: dict[str, Any], width: int, kind: str
) -> None:
    flow = small_flow(cls, width, **options)
    assert_backend_right("compiled", lambda dtype: evaluate(flow, kind, dtype))


@pytest.mark.parametrize(("cls", "name"), list(zip(ALL_FLOWS, cycle(BACKENDS))))
def test_the_slope_at_weight_1_is_that_of_weights_below(cls: type[Flow], name: str) -> None:
    flow, graph = build_flow(cls), random_graph(weighted=False)
    z = random_state(flow)

    def loss(weight: Tensor) -> Tensor:
        weighted = with_weight(graph, weight)
        out = flow(TIME, z, flow.prepare(z, weighted))
        return (out * signal(*out.shape)).sum()

    with backend(name), without_type_checks():
        weight = graph.weight.clone().requires_grad_()
        (slope,) = torch.autograd.grad(loss(weight), weight)
        with torch.no_grad():  # one-sided differences of second order
            steps = 1e-4 * torch.eye(graph.num_edges, dtype=torch.float64)
            at_1, one, two = (
                torch.stack([loss(1 - k * step) for step in steps]) for k in (0, 1, 2)
            )
    torch.testing.assert_close(slope, (3 * at_1 - 4 * one + two) / 2e-4, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cls", [Beltrami, Grand])
def test_only_unfused_flows_have_a_second_derivative(cls: type[Flow]) -> None:
    graph, _ = inputs_of("unweighted", torch.float64)
    z, flow = signal(NODES, 3).requires_grad_(), small_flow(cls, 3, lipschitz=False).double()
    with backend("torch"):
        assert torch.autograd.gradgradcheck(lambda z: flow(TIME, z, graph), z, fast_mode=True)
    with backend("compiled"):
        out = flow(TIME, z, graph).square().sum()
        (slope,) = torch.autograd.grad(out, z, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            slope.square().sum().backward()


@pytest.mark.parametrize("name", [*BACKENDS, "triton"])
@pytest.mark.parametrize("weighted", [False, True])
def test_nan_reaches_the_same_nodes(weighted: bool, name: str) -> None:
    along = torch.arange(19)
    edge_index = torch.stack([torch.cat([along, along + 1]), torch.cat([along + 1, along])])
    weight = torch.rand(38) if weighted else None
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=20)
    flow, z = small_flow(Beltrami, 7), signal(20, 7).float()
    z[9, 3] = torch.nan
    with backend(name), torch.no_grad():
        finite = flow(TIME, z, graph).isfinite().all(1)
    assert (~finite).nonzero().flatten().tolist() == [7, 8, 9, 10, 11]


@pytest.mark.parametrize("norm", ["edges", "residual"])
def test_large_graphs_and_any_number_of_threads(norm: str) -> None:
    """More edges than are held at once; the kernels alone, since matrix products do differ."""
    generator = torch.Generator().manual_seed(4)
    edge_index = torch.randint(1500, (2, 9000), generator=generator)
    weight = torch.rand(9000, generator=generator)
    weight[::9] = 0.0
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=1500)
    flow = small_flow(Beltrami, 32, gradient_norm=norm)

    def values() -> list[Tensor]:
        z, leaf = signal(1500, 32).float().requires_grad_(), graph.weight.clone().requires_grad_()
        out = flow(TIME, z, with_weight(graph, leaf))
        return [out, *torch.autograd.grad(out.square().sum(), (z, leaf))]

    for actual, expected in on_both(values):
        assert distance(actual, expected) < 1e-5
    projected = signal(1500, 2 * 6 * 4).float().view(1500, 2, 6, 4), signal(6, 4).float()
    modulation = Modulation(-1.0, -1.0, norm == "residual", FLOORS[norm], CEILINGS[norm])
    z, results = signal(1500, 32).float(), []
    with backend("compiled"):
        kernels = kernels_for(z, heads=4)
        for threads in (1, 2, 2, 3):
            torch.set_num_threads(threads)
            try:
                out, diffused = kernels.diffuse(z, *projected, graph.weight, graph, modulation)
                results.append([out, *kernels.diffuse_backward(out, diffused, with_weight=True)])
            finally:
                torch.set_num_threads(1)
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


def saved_bytes(function: Callable[[], Tensor]) -> int:
    """Bytes of the distinct tensors that are kept for the backward pass."""
    kept: dict[int, int] = {}

    def note(saved: Tensor) -> Tensor:
        kept[saved.data_ptr()] = saved.untyped_storage().nbytes()
        return saved

    with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
        function()
    return sum(kept.values())


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("cls", [Beltrami, Grand])
def test_nothing_of_edges_times_channels_is_kept(cls: type[Flow], name: str) -> None:
    torch.manual_seed(5)
    nodes, edges, channels, heads = 50, 4000, 64, 4
    edge_index, weight = torch.randint(nodes, (2, edges)), torch.rand(edges, requires_grad=True)
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=nodes)
    z = signal(nodes, channels).float().requires_grad_()
    flow = small_flow(cls, channels, heads=heads, attention_channels=channels)
    with backend(name):
        kept = saved_bytes(lambda: flow(TIME, z, graph))
        with torch.no_grad():
            assert saved_bytes(lambda: flow(TIME, z, graph)) == 0
    by_node, by_edge = 8 * nodes * channels, 5 * graph.num_edges * heads
    parameters = 4 * channels * channels
    assert 4 * graph.num_edges < kept < 4 * (by_node + by_edge + parameters)
    assert kept < 4 * graph.num_edges * channels / 2


@pytest.mark.parametrize("name", ["compiled", "triton"])
def test_what_does_not_fit_the_graph_is_an_error_before_memory_is_read(name: str) -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    with backend(name), without_type_checks():
        for edges in ([[0, 5], [1, 0]], [[0, 1], [1, 3]], [[0, -1], [1, 0]]):
            with pytest.raises(DataError, match="edge_index"):
                Graph.from_edge_index(torch.tensor(edges), num_nodes=3, self_loops=False)
        with pytest.raises(DataError, match="3 nodes"):
            Beltrami(4)(TIME, torch.ones(2, 4), graph)
        with pytest.raises(DataError, match="5 edges"):
            row_softmax(torch.ones(4, 2), graph)
        with pytest.raises(DataError, match="edge_weight"):
            Graph.from_edge_index(graph.edge_index, torch.ones(3), num_nodes=3)
