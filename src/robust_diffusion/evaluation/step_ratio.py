"""Length of a network's equal steps, relative to the longest stable one."""

import logging
import math
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.evaluation.flags import Flag
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

PERTURBATION = 1e-3
"""Length of a difference, relative to the state, that stands in for a derivative."""

TOLERATED = 1.5
"""Ratio above which a warning is logged; the ratio is an estimate."""

DIVERGED = 20.0
"""Ratio above which a model is flagged.

In 754 published runs, the ratio was at least 345 where the norm of a state grew a thousandfold, and
at most 5.2 elsewhere."""


def step_ratio(model: nn.Module, data: Data) -> float | None:
    """Estimate the length of an equal step over the longest stable one, at most over the layers.

    The longest stable step follows from the largest |eigenvalue| of the right-hand side's
    derivative at Z(0).

    Returns:
        The ratio; `None` for a model that takes no equal steps.
    """
    starts: dict[Flow, tuple[Tensor, Graph]] = {}

    def remember(flow: Flow, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        starts.setdefault(flow, (inputs[1], named.get("graph", inputs[-1])))

    solvers: dict[Flow, Solver] = {}
    with torch.no_grad():
        with ExitStack() as stack:
            for module in model.modules():
                flow, solver = getattr(module, "flow", None), getattr(module, "solver", None)
                if isinstance(flow, Flow) and isinstance(solver, Solver):
                    solvers[flow] = solver
                    # A narrowed state starts elsewhere, such as HANG's at 0.
                    vars(flow)["narrowed"] = partial(Flow.narrowed, flow)
                    stack.callback(vars(flow).pop, "narrowed", None)
                    hook = flow.register_forward_pre_hook(remember, with_kwargs=True)
                    stack.enter_context(hook)
            if solvers:
                model(data.x, data.edge_index)
        ratios = [_ratio(flow, solvers[flow], *start) for flow, start in starts.items()]
    return max((r for r in ratios if r is not None and math.isfinite(r)), default=None)


def warn_of_steps(model: nn.Module, data: Data) -> None:
    """Warn before training if the steps are unstable."""
    ratio = step_ratio(model, data)
    if ratio is not None and ratio > TOLERATED:
        log.warning(
            "solver: a step is %.3g times the longest stable one, so that errors grow; raise "
            "solver.num_steps, or lower flow.t_end",
            ratio,
        )


def step_flags(ratio: float | None) -> Iterator[Flag]:
    """Yield a flag if a model's steps are so long that its state diverges."""
    if ratio is not None and ratio > DIVERGED:
        text = f"a step of the solver is {ratio:.3g} times the longest stable one; take more steps"
        yield Flag("diverged", text)


def _ratio(flow: Flow, solver: Solver, z: Tensor, graph: Graph) -> float | None:
    if (steps := solver.on(flow.t_end).num_steps) is None:
        return None
    begins = solver.method in ADAMS and steps <= RUNGE_KUTTA_STEPS
    stable = STABLE["rk4" if begins else solver.method]
    return flow.t_end / steps * _spectral_radius(flow, z, graph) / stable


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
