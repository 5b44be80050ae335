"""Diagnostics of a network's solvers: growth of the state, stable steps, corrector convergence."""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.flows import Flow
from robust_diffusion.integrators.solver import ADAMS, RUNGE_KUTTA_STEPS, Solver
from robust_diffusion.operators import Graph

log = logging.getLogger(__name__)

STABLE = {
    "euler": 2.0,
    "midpoint": 2.0,
    "heun2": 2.0,
    "heun3": 2.51,
    "rk4": 2.78,
    "explicit_adams": 0.3,
    "implicit_adams": 2.66,
}
"""Longest stable step of dz/dt = -z.

Explicit Runge-Kutta methods: Hairer and Wanner, Solving Ordinary Differential Equations II, sec.
IV.2. explicit_adams: for order 4; higher orders have shorter stable steps. implicit_adams: the step
at which the corrector's iteration, with coefficient 3/8 at order 4, stops contracting."""

ITERATIONS = 10
"""Steps of the power method, each one evaluation."""

_TINY = 1e-30
"""Smallest norm of an initial state; avoids division by 0."""

PERTURBATION = 1e-3
"""Length of a difference, relative to the state, that stands in for a derivative."""

CORRECTED = "implicit_adams"
"""The method with a corrector."""

TOLERATED = 1.5
"""Factor over the longest stable step above which a warning is logged; both are estimates."""

_UNSETTLED = 1e-3
"""Relative change by a corrector's last iteration above which a warning is logged."""

LARGEST_GROWTH = 1e3
"""Growth of the norm above which a solve has diverged; diffusion alone never increases the norm."""


def solves_of(model: nn.Module, data: Data) -> dict[str, float | None]:
    """Measure the solves of one forward pass; each value is that of the worst layer.

    Returns:
        An empty dictionary for a model without a solver. Otherwise `norm_growth`, the growth of the
        state's norm from 0 to t_end; `spectral_radius`, an estimate of the largest |eigenvalue| of
        the right-hand side's derivative at Z(0); `step_ratio`, the length of a fixed step over the
        longest stable one; and `corrector_change`, the largest relative change by the last
        iteration of implicit_adams in a step. A value is `None` if it does not apply to the solver
        or is not finite.
    """
    assert data.x is not None
    assert data.edge_index is not None
    with torch.no_grad(), _watched(model) as layers:
        if not layers:
            return {}
        model(data.x, data.edge_index)
        solves = [layer.measured() for layer in layers if layer.start is not None]
    return {key: _worst([layer[key] for layer in solves]) for key in (solves[0] if solves else {})}


def _worst(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known and all(map(math.isfinite, known)) else None


def warn_of_steps(model: nn.Module, data: Data) -> None:
    """Warn before training if the steps are unstable or the corrector does not converge."""
    solves = solves_of(model, data)
    ratio, radius = solves.get("step_ratio"), solves.get("spectral_radius")
    if ratio is not None and radius is not None and ratio > TOLERATED:
        log.warning(
            "solver: a step is %.3g times the longest stable one (spectral radius about %.3g), so "
            "that errors grow; raise solver.num_steps, or lower flow.t_end",
            *(ratio, radius),
        )
    if (change := solves.get("corrector_change") or 0.0) > _UNSETTLED:
        log.warning(
            "solver: the corrector's last iteration still changes the state by %.2g %%; raise "
            "solver.num_steps, or take solver=rk4",
            100 * change,
        )


class _LayerSolve:
    """The solve of one layer in one forward pass."""

    def __init__(self, flow: Flow, solver: Solver) -> None:
        self.flow, self.solver = flow, solver
        self.start: Tensor | None = None
        self.end: Tensor | None = None
        self.graph: Graph | None = None
        self.corrector_change: float | None = None
        self._before: Tensor | None = None
        self._time, self._times, self._change = math.nan, 0, 0.0

    def evaluated(self, _: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Record an evaluation of the flow."""
        (t, z), graph = inputs[:2], named.get("graph", inputs[-1])
        if self.start is None:
            self.start, self.graph = z, graph
        if self.solver.method != CORRECTED:
            return
        if float(t) != self._time:
            self._settle()
            self._time, self._times = float(t), 0
        elif self._before is not None:
            self._change = float((z - self._before).abs().max() / z.abs().max())
        self._times, self._before = self._times + 1, z

    def ended(self, _: nn.Module, __: tuple[Any, ...], out: Tensor | tuple[Any, ...]) -> None:
        """Record the state at the end of the layer."""
        self.end = out[0] if isinstance(out, tuple) else out
        self._settle()

    def _settle(self) -> None:
        if self._times > 2:  # iterations of a corrector; 2 or fewer are stages of a first step
            self.corrector_change = max(self.corrector_change or 0.0, self._change)

    def measured(self) -> dict[str, float | None]:
        """Return the values of `solves_of`."""
        assert self.start is not None
        assert self.end is not None
        assert self.graph is not None
        radius, ratio = _spectral_radius(self.flow, self.start, self.graph), None
        if (steps := self.solver.steps_on(self.flow.t_end)) is not None:
            begins = self.solver.method in ADAMS and steps <= RUNGE_KUTTA_STEPS
            stable = STABLE["rk4" if begins else self.solver.method]
            ratio = self.flow.t_end / steps * radius / stable
        return {
            "norm_growth": float(self.end.norm() / self.start.norm().clamp(min=_TINY)),
            "spectral_radius": radius,
            "step_ratio": ratio,
            "corrector_change": self.corrector_change,
        }


@contextmanager
def _watched(model: nn.Module) -> Iterator[list[_LayerSolve]]:
    """Yield a list of layer solves, which the next forward pass within the context fills."""
    layers: list[_LayerSolve] = []
    with ExitStack() as stack:
        for module in model.modules():
            flow, solver = getattr(module, "flow", None), getattr(module, "solver", None)
            if isinstance(flow, Flow) and isinstance(solver, Solver):
                layers.append(layer := _LayerSolve(flow, solver))
                # Disables narrowing of the state, since a narrowed one starts elsewhere (HANG's
                # at 0).
                vars(flow)["narrowed"] = partial(Flow.narrowed, flow)
                stack.callback(vars(flow).pop, "narrowed", None)
                hook = flow.register_forward_pre_hook(layer.evaluated, with_kwargs=True)
                stack.enter_context(hook)
                stack.enter_context(module.register_forward_hook(layer.ended))
        yield layers


def _spectral_radius(flow: Flow, z: Tensor, graph: Graph) -> float:
    """Run the power method on differences of the right-hand side, from a fixed start."""
    t = z.new_tensor(0.0)
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(z.shape, generator=generator, dtype=z.dtype).to(z.device)
    at_start, length = flow(t, z, graph), PERTURBATION * float(z.norm())
    radius = 0.0
    for _ in range(ITERATIONS):
        direction = direction * (length / float(direction.norm()))
        direction = flow(t, z + direction, graph) - at_start
        radius = float(direction.norm()) / length if length else 0.0
        if not radius:
            return 0.0
    return radius
