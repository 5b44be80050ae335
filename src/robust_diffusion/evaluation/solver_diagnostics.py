"""The solves of a network: growth of their states, stability of their steps, settled correctors."""

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
    "fixed_adams": 2.66,
}
"""Longest stable step of dz/dt = -z.

Explicit Runge-Kutta methods: Hairer and Wanner, Solving Ordinary Differential Equations II, sec.
IV.2. explicit_adams: of order 4, and less above. implicit_adams: the step at which the corrector's
iteration, of coefficient 3/8 at order 4, no longer contracts."""

ITERATIONS = 10
"""Steps of the power method, each one evaluation."""

_TINY = 1e-30
"""Norm by which growth from a state of zeros is measured."""

PERTURBATION = 1e-3
"""Length of a difference, relative to the state, that stands in for a derivative."""

CORRECTED = ("implicit_adams", "fixed_adams")
"""Methods with a corrector."""

TOLERATED = 1.5
"""Steps longer than the longest stable one by this factor are told: both are estimates."""

_UNSETTLED = 1e-3
"""Change by a corrector's last iteration, relative to the state, that is flagged."""

LARGEST_GROWTH = 1e3
"""Growth of the norm beyond which a solve has diverged: diffusion alone makes no norm larger."""


def solves_of(model: nn.Module, data: Data) -> dict[str, float | None]:
    """The solves of one forward pass, each number that of the worst layer.

    Returns:
        Nothing for a model without a solver. Else `norm_growth`, of the state's norm from 0 to
        t_end; `spectral_radius`, an estimate of the largest |eigenvalue| of the right-hand side's
        derivative at Z(0); `step_ratio`, equal steps over the longest stable one; and
        `corrector_change`, relative, by the last iteration of implicit_adams in any step. `None`
        stands for what the solver does not have, and for what is not finite.
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
    """Warn, before a model is trained, of steps that are not stable or a corrector that drifts."""
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
        """Take note of an evaluation of the flow."""
        (t, z), graph = inputs[:2], named.get("graph", inputs[-1])
        if self.start is None:
            self.start, self.graph = z, graph
        if self.solver.method not in CORRECTED:
            return
        if float(t) != self._time:
            self._settle()
            self._time, self._times = float(t), 0
        elif self._before is not None:
            self._change = float((z - self._before).abs().max() / z.abs().max())
        self._times, self._before = self._times + 1, z

    def ended(self, _: nn.Module, __: tuple[Any, ...], out: Tensor | tuple[Any, ...]) -> None:
        """Take note of the layer's end."""
        self.end = out[0] if isinstance(out, tuple) else out
        self._settle()

    def _settle(self) -> None:
        if self._times > 2:  # iterations of a corrector; else stages of a first step
            self.corrector_change = max(self.corrector_change or 0.0, self._change)

    def measured(self) -> dict[str, float | None]:
        """The numbers of `solves_of`."""
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
    """Filled, in a `with` block, by the next forward pass."""
    layers: list[_LayerSolve] = []
    with ExitStack() as stack:
        for module in model.modules():
            flow, solver = getattr(module, "flow", None), getattr(module, "solver", None)
            if isinstance(flow, Flow) and isinstance(solver, Solver):
                layers.append(layer := _LayerSolve(flow, solver))
                # The state itself: a narrower one starts elsewhere, HANG's at 0.
                vars(flow)["narrowed"] = partial(Flow.narrowed, flow)
                stack.callback(vars(flow).pop, "narrowed", None)
                hook = flow.register_forward_pre_hook(layer.evaluated, with_kwargs=True)
                stack.enter_context(hook)
                stack.enter_context(module.register_forward_hook(layer.ended))
        yield layers


def _spectral_radius(flow: Flow, z: Tensor, graph: Graph) -> float:
    """The power method on differences of the right-hand side, from a fixed start."""
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
