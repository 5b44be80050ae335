import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from robust_diffusion.errors import ConfigError, TrainingError
from robust_diffusion.flows import Beltrami, Flow, Frond, Grand, Heat, Learned, count_evaluations
from robust_diffusion.integrators.solver import ADAPTIVE_METHODS, Solver
from robust_diffusion.models import GraphPDE
from robust_diffusion.operators import Graph
from tests.graphs import (
    CHANNELS,
    SourceFlow,
    build_flow,
    random_graph,
    random_signal,
    with_weight,
    without_type_checks,
)
from tests.integrators.problems import decay

ONES = torch.ones(3, 2, dtype=torch.float64)
pytestmark = pytest.mark.filterwarnings("ignore:The following arguments have no effect")


class CountingFlow(Flow):
    calls = 0

    def edge_weights(self, z: Tensor, graph: Graph) -> Tensor:
        return graph.weight

    def forward(self, t: Tensor, z: Tensor, graph: Graph) -> Tensor:
        self.calls += 1
        return -z


@pytest.mark.parametrize(
    ("method", "evaluations"),
    [
        ("euler", (1, 2, 10)),
        ("midpoint", (2, 4, 20)),
        ("heun2", (2, 4, 20)),
        ("heun3", (3, 6, 30)),
        ("rk4", (4, 8, 40)),
        ("explicit_adams", (4, 8, 16)),
        ("implicit_adams", (4, 8, None)),
    ],
)
@pytest.mark.parametrize(("position", "num_steps"), list(enumerate([1, 2, 10])))
def test_solver_number_of_evaluations(
    method: str, evaluations: tuple[int | None, ...], position: int, num_steps: int
) -> None:
    solver, flow, graph = Solver(method, num_steps=num_steps), CountingFlow(2), random_graph()
    with count_evaluations(flow) as count:
        solver.integrate(lambda t, z: flow(t, z, graph), ONES, 1.0)
    assert count.total == flow.calls
    if evaluations[position] is None:
        # Two steps of RK4, then one prediction and one to four corrections in each step.
        assert 8 + 8 * 2 <= count.total <= 8 + 8 * 5
    else:
        assert count.total == evaluations[position]


@pytest.mark.parametrize(
    ("step_size", "t_end", "num_steps"), [(0.5, 1.0, 2), (0.1, 1.1, 11), (0.1, 0.3, 3)]
)
@pytest.mark.parametrize("method", ["euler", "implicit_adams"])
def test_step_size_gives_the_bits_of_its_number_of_steps(
    step_size: float, t_end: float, num_steps: int, method: str
) -> None:
    ends = [
        Solver(method, **given).integrate(decay, ONES, t_end)
        for given in ({"step_size": step_size}, {"num_steps": num_steps})
    ]
    assert torch.equal(*ends)


@pytest.mark.parametrize(
    ("step_size", "near"), [(0.3, r"0\.333333 \(3 steps\) or 0\.25 \(4 steps\)"), (2.0, r"1 \(1 ")]
)
def test_step_size_that_does_not_divide_the_period_is_refused_with_the_nearest(
    step_size: float, near: str
) -> None:
    solver = Solver("rk4", step_size=step_size)
    with pytest.raises(ConfigError, match=rf"^solver\.step_size={step_size:g}: [^\n]*{near}"):
        GraphPDE(3, out_channels=2, solver=solver)


@pytest.mark.parametrize("kind", [Heat, Frond])
def test_solver_with_a_step_size_returns_the_state_of_an_empty_period(kind: type[Flow]) -> None:
    flow, z = build_flow(kind), random_signal()
    flow.t_end = 0.0
    assert torch.equal(Solver("rk4", step_size=0.5).solve(flow, z, random_graph()), z)


@pytest.mark.parametrize("method", sorted(ADAPTIVE_METHODS))
def test_solver_tolerance(method: str) -> None:
    errors = []
    for tolerance in (1e-3, 1e-6):
        solver = Solver(method, rtol=tolerance, atol=tolerance)
        end = solver.integrate(decay, ONES, 1.0)
        errors.append((end - math.exp(-1)).abs().max().item())
    assert errors[0] < 0.2
    assert errors[1] < 1e-4
    assert errors[1] < errors[0] / 10


STUCK: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "blows up": lambda t, z: z.square(),
    "not a number later": lambda t, z: torch.where(t < 0.5, z, math.nan),
    "infinite slope": lambda t, z: z * math.inf,
    "singular": lambda t, z: 1 / (1 - t) ** 2 * z,
}


@pytest.mark.parametrize("rhs", STUCK.values(), ids=STUCK)
def test_solver_stuck(rhs: Callable[[Tensor, Tensor], Tensor]) -> None:
    with pytest.raises(TrainingError, match="solver=dopri5"):
        Solver("dopri5", rtol=1e-3, atol=1e-4).integrate(rhs, ONES.clone().requires_grad_(), 2.0)


FLOWS: list[tuple[type[Flow], dict[str, str]]] = [
    *[(cls, {}) for cls in (Grand, Beltrami, Learned, SourceFlow)],
    (Heat, {"weights": "frozen_attention"}),
]


def gradients(solver: Solver, cls: type[Flow], **flow_options: str) -> list[Tensor]:
    """Gradients in the state, the edge weights and the parameters."""
    flow, graph = build_flow(cls, **flow_options), random_graph()
    for parameter in flow.parameters():
        if not parameter.any():  # what begins at zero hides the gradients before it
            torch.nn.init.normal_(parameter)
    z, weight = random_signal().requires_grad_(), graph.weight.clone().requires_grad_()
    # Not a leaf, as in a model, where the graph sorts the weights that the caller gave.
    graph = with_weight(graph, weight * 1.0)
    with without_type_checks():  # of the flow: they take longer than it does
        end = solver.solve(flow, z.tanh(), graph)
        (end * random_signal(1)).sum().backward()
    tensors = [z, weight, *flow.parameters()]
    assert all(tensor.grad is not None for tensor in tensors)
    return [tensor.grad for tensor in tensors if tensor.grad is not None]


RK4 = {"method": "rk4", "num_steps": 20}
PRECISE = {"rtol": 1e-8, "atol": 1e-9}
DOPRI5 = {"method": "dopri5", **PRECISE}


@pytest.mark.parametrize(
    "case",
    [
        *[(cls, flow_options, RK4) for cls, flow_options in FLOWS],
        *[(cls, {}, DOPRI5) for cls in (Beltrami, SourceFlow)],
    ],
)
def test_solver_adjoint_gradients(case: tuple[Any, ...]) -> None:
    cls, flow_options, options = case
    expected = gradients(Solver(**options), cls, **flow_options)
    found = gradients(Solver(**options, adjoint=True), cls, **flow_options)
    for of_direct, of_adjoint in zip(expected, found, strict=True):
        assert of_direct.abs().max() > 1e-7
        torch.testing.assert_close(of_adjoint, of_direct, rtol=1e-3, atol=1e-7)


def test_solver_implicit_adams_warnings(recwarn: pytest.WarningsRecorder) -> None:
    def stiff(t: Tensor, z: Tensor) -> Tensor:
        warnings.warn("of the right-hand side", stacklevel=1)
        return -30 * z

    Solver("implicit_adams").integrate(stiff, ONES.float(), 1.0)
    assert {str(warning.message) for warning in recwarn} == {"of the right-hand side"}


TIGHT = {"rtol": 1e-3, "atol": 1e-3}


@pytest.mark.parametrize(
    ("method", "options", "key"),
    [
        ("rk4", {"num_steps": 1, "rtol": 1e-3}, "rtol"),
        ("euler", {"num_steps": 1, "step_size": 1.0}, "step_size"),
        *[("dopri5", TIGHT | {key: 3}, key) for key in ("num_steps", "step_size")],
        *[("rk4", {"step_size": h}, "step_size") for h in (-0.5, math.nan)],
        *[("rk4", {"num_steps": n}, "num_steps") for n in (0, 2.5, True)],
        ("dopri5", TIGHT | {"rtol": 0.0}, "rtol"),
        ("rk4", {"num_steps": 1, "max_nfe": 0}, "max_nfe"),
        ("rk5", {"num_steps": 1}, "method"),
    ],
)
def test_solver_errors(method: str, options: dict[str, object], key: str) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=rf"solver\.{key}"):
        Solver(method, **options)


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
@pytest.mark.parametrize(
    ("slope", "shown"), [(lambda z: z[:, :1], r"\(3, 1\)"), (lambda z: None, "NoneType")]
)
def test_solver_derivative_of_another_shape(method: Any, slope: Any, shown: str) -> None:
    with pytest.raises(ConfigError, match=rf"^flow: [^\n]*\(3, 2\), got {shown};"):
        Solver(method).integrate(lambda _, z: slope(z), ONES, 1.0)


@pytest.mark.parametrize("options", [{}, {"adjoint": True}])
@pytest.mark.parametrize("flow", [Heat(CHANNELS), Frond(CHANNELS)])
def test_solver_learned_period(flow: Flow, options: Any) -> None:
    flow.t_end = torch.nn.Parameter(torch.tensor(1.0))
    if flow.order == 1 or not options:
        with without_type_checks(), pytest.raises(ConfigError, match=r"^flow\.t_end: .*a tensor"):
            Solver("rk4", **options).solve(flow.double(), random_signal(), random_graph())
