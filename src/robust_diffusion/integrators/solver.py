"""Numerical integration of a flow: its method, its steps, and how it is differentiated."""

import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol, cast, get_args, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.checks import Count, Positive, SomeSteps, validated
from robust_diffusion.errors import ConfigError, TrainingError
from robust_diffusion.integrators import (
    METHODS,
    RightHandSide,
    checked,
    cut_off,
    solve_distributed,
    solve_fixed_step,
    solve_fractional,
)
from robust_diffusion.operators import Graph

log = logging.getLogger(__name__)

Adams = Literal["explicit_adams", "implicit_adams"]
FixedStep = Literal[Adams, "euler", "midpoint", "heun2", "heun3", "rk4"]
Adaptive = Literal["dopri8", "dopri5", "bosh3", "fehlberg2", "adaptive_heun"]
Method = Literal[FixedStep, Adaptive]

ADAMS = frozenset(get_args(Adams))
FIXED_STEP_METHODS = frozenset(get_args(FixedStep))
ADAPTIVE_METHODS = frozenset(get_args(Adaptive))

RUNGE_KUTTA_STEPS = 2
"""Number of first steps of an Adams method, which has no past yet, that are steps of rk4."""

STABLE_STEPS = 20
"""Most steps for which explicit_adams keeps dz/dt = -z to a percent (100 steps: no digit right)."""

STEPS, RTOL, ATOL = 10, 1e-4, 1e-6
"""Default steps and tolerances."""


@runtime_checkable
class FlowLike(Protocol):
    """The part of a flow's interface that a solver uses; see `flows.Flow`."""

    order: Any  # a number, or a tuple of orders whose weights are `order_weights`
    t_end: float

    def prepare(self, z: Tensor, graph: Graph) -> Graph:
        """Return the graph with the tensors that the flow carries along."""

    def initial_state(self, z: Tensor, graph: Graph) -> Tensor:
        """Return the state at time 0."""

    def features(self, state: Tensor) -> Tensor:
        """Return the features of a state."""

    def narrowed(self, z: Tensor, graph: Graph) -> tuple[Tensor, Graph, Callable[[Tensor], Tensor]]:
        """Return a narrower state at time 0, its graph, and its map to features."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters with a gradient."""

    def __call__(self, t: Tensor, z: Tensor, graph: Graph) -> Tensor:
        """Return the derivative."""


@validated("solver")
@dataclass(eq=False)
class Solver:
    """An initial value problem solver, with its options checked.

    The methods are torchdiffeq's. euler, rk4 and Adams methods of up to two steps run in this
    package's own loops, which compute the same bits in less time.

    Args:
        method: A torchdiffeq method. Fixed-step: euler, midpoint, heun2, heun3, rk4,
            explicit_adams, implicit_adams. Adaptive: dopri5, dopri8, bosh3, fehlberg2,
            adaptive_heun.
        num_steps: Number of equal steps on the integration period, at least 1; for fixed-step
            methods only, where `None` without a step size is 10. The paper's tau, see notes in
            `docs/paper/deviations.md`.
        step_size: Length of a step, in time, instead of `num_steps`; it must divide the period.
        rtol: Relative tolerance, positive; for adaptive methods only, where `None` is 1e-4.
        atol: Absolute tolerance, positive; for adaptive methods only, where `None` is 1e-6.
        adjoint: Differentiate by the adjoint equation, in memory that does not grow with the
            number of steps, instead of through the steps.
        max_nfe: Most evaluations of one solve, those of its backward pass included, at least 1;
            `None` for no limit.

    Raises:
        ConfigError: An unknown method, or an option that the method lacks or that is out of range.

    Examples:
        >>> from robust_diffusion import GraphPDE, Solver
        >>> solver = Solver("rk4", num_steps=4)
        >>> GraphPDE(5, out_channels=3, solver=solver).layers[0].solver.num_steps
        4
    """

    method: Method
    _: KW_ONLY
    num_steps: SomeSteps | None = None
    step_size: Positive | None = None
    rtol: Positive | None = None
    atol: Positive | None = None
    adjoint: bool = False
    max_nfe: Count | None = None

    def __post_init__(self) -> None:
        """Check the options against each other."""
        if self.method in FIXED_STEP_METHODS:
            if self.rtol is not None or self.atol is not None:
                raise ConfigError(
                    f"solver.rtol, solver.atol: {self.method} has no tolerance; drop them"
                )
            if self.step_size is None:
                self.num_steps = self.num_steps or STEPS
            elif self.num_steps is not None:
                steps = f"solver.num_steps={self.num_steps}, solver.step_size={self.step_size:g}"
                raise ConfigError(f"{steps}: each sets the steps; give one of them")
        elif self.num_steps is not None or self.step_size is not None:
            given = (
                f"num_steps={self.num_steps}" if self.num_steps else f"step_size={self.step_size}"
            )
            raise ConfigError(f"solver.{given}: {self.method} picks its own steps")
        else:
            self.rtol, self.atol = self.rtol or RTOL, self.atol or ATOL
        self._logged: set[str] = set()

    @property
    def own_loop(self) -> bool:
        """Whether a loop of this package runs, not torchdiffeq's."""
        if self.adjoint:
            return False
        if self.method in ADAMS:
            return self.num_steps is not None and self.num_steps <= RUNGE_KUTTA_STEPS
        return self.method in METHODS

    def on(self, t_end: float) -> "Solver":
        """Return the solver with the number of steps of its step size on [0, t_end].

        Raises:
            ConfigError: The step size does not divide the period.
        """
        if self.step_size is None:
            return self
        steps = t_end / self.step_size
        if abs(steps - round(steps)) > 1e-9 * steps:  # 1.1 / 0.1 is whole up to rounding
            near = sorted({max(1, math.floor(steps)), math.ceil(steps)})
            sizes = " or ".join(f"{t_end / n:.6g} ({n} step{'s' * (n > 1)})" for n in near)
            raise ConfigError(
                f"solver.step_size={self.step_size:g}: expected a step that divides "
                f"flow.t_end={t_end:g}, got {steps:.3g} steps; take {sizes}"
            )
        return replace(self, num_steps=max(1, round(steps)), step_size=None)

    def solve(self, flow: FlowLike, z: Float[Tensor, "n d"], graph: Graph) -> Float[Tensor, "n d"]:
        """Return the features at the end of a flow's integration period, from `z` at its start.

        Gradients reach `z`, the edge weights, what `flow.prepare` computed from them, and the
        flow's parameters, by the direct derivative and by the adjoint alike.

        Raises:
            TrainingError: As in `integrate`.
            ConfigError: The flow depends on other tensors, in the backward pass of the adjoint; or
                a flow of fractional order is combined with a method that picks its steps, or with
                the adjoint.
        """
        if self.step_size is not None:
            return self.on(flow.t_end).solve(flow, z, graph)
        graph = flow.prepare(z, graph)
        if self.own_loop:  # others follow the state's norm
            state, graph, features = flow.narrowed(z, graph)
            return features(self._end(flow, state, graph))
        return flow.features(self._end(flow, flow.initial_state(z, graph), graph))

    def _end(self, flow: FlowLike, z: Tensor, graph: Graph) -> Tensor:
        if flow.order != 1:
            return self._fractional(flow, z, graph)
        self._require_precision(z)
        if not (self.adjoint and torch.is_grad_enabled()) or flow.t_end == 0:
            return self.integrate(partial(flow, graph=graph), z, flow.t_end)
        parameters = [p for p in flow.parameters() if p.requires_grad]

        weights = () if graph.weight is None else (graph.weight,)

        def solve(z: Tensor, *inputs: Tensor) -> Tensor:
            carried = dict(zip(graph.carried, inputs[len(weights) :], strict=True))
            cut = replace(graph, weight=inputs[0] if weights else None, carried=carried)
            return self.integrate(partial(flow, graph=cut), z, flow.t_end, (*parameters, *inputs))

        return cut_off(solve, (z, *weights, *graph.carried.values()), parameters)

    def integrate(
        self, rhs: RightHandSide, z: Tensor, t_end: float, parameters: Sequence[Tensor] = ()
    ) -> Tensor:
        """Solve dZ/dt = rhs(t, Z), Z(0) = z, for Z(t_end).

        Args:
            rhs: The right-hand side.
            z: Initial state, any shape.
            t_end: End of the integration period [0, t_end]; at 0 the state itself is returned.
            parameters: Tensors that `rhs` depends on, none of them computed from another. Only the
                adjoint needs them, to compute their gradients.

        Returns:
            The state at `t_end`.

        Raises:
            TrainingError: An adaptive method's step shrank below rounding, or its state was not
                finite; or there were more evaluations than `max_nfe`.
            ConfigError: A derivative has another shape than the state.
        """
        if t_end == 0:
            return z
        if self.step_size is not None:
            return self.on(t_end).integrate(rhs, z, t_end, parameters)
        rhs = self._counted(rhs, t_end)
        if self.own_loop:
            assert self.num_steps is not None
            method = METHODS["rk4" if self.method in ADAMS else self.method]
            return solve_fixed_step(rhs, z, t_end, method, self.num_steps)
        arguments: dict[str, Any] = {"method": self.method}
        if self.num_steps is not None:
            arguments["options"] = {"grid_constructor": partial(self._grid, self.num_steps)}
        else:
            arguments |= {"rtol": self.rtol, "atol": self.atol}
        times = torch.tensor([0.0, t_end], dtype=z.dtype, device=z.device)
        from torchdiffeq import odeint, odeint_adjoint  # late, since SciPy's solvers come along

        try:
            with warnings.catch_warnings():
                if z.dtype != torch.float64:  # which never settles to the 1e-7 of torchdiffeq
                    corrector = "Functional iteration did not converge"
                    warnings.filterwarnings("ignore", message=corrector)
                if self.adjoint:
                    wanted = tuple(p for p in parameters if p.requires_grad)
                    rhs = checked(rhs, wanted)
                    states = odeint_adjoint(rhs, z, times, adjoint_params=wanted, **arguments)
                else:
                    states = odeint(rhs, z, times, **arguments)
        except AssertionError as error:
            # torchdiffeq asserts that the step stays above the rounding unit and the state finite.
            if "underflow" not in str(error) and "non-finite" not in str(error):
                raise
            raise TrainingError(
                f"solver={self.method}: the step shrank below rounding or the state is not finite "
                f"at rtol={self.rtol}, atol={self.atol}; loosen solver.rtol and solver.atol"
            ) from error
        state: Tensor = states[-1]
        return state

    def _fractional(self, flow: FlowLike, z: Tensor, graph: Graph) -> Tensor:
        num_steps = self.num_steps
        if self.adjoint or num_steps is None:
            fixed = f"a solver of fixed steps, such as rk4, instead of {self.method}"
            remedies = [fixed] * (num_steps is None) + ["solver.adjoint=false"] * self.adjoint
            raise ConfigError(
                f"flow.order={flow.order}: a derivative of fractional order is solved in equal "
                f"steps and differentiated through them; use {' and '.join(remedies)}"
            )
        if flow.t_end == 0:
            return z
        rhs = self._counted(partial(flow, graph=graph), flow.t_end)
        times = (flow.t_end, flow.order)
        if isinstance(flow.order, tuple):
            if num_steps == 1:
                self._warn_once(
                    f"solver.num_steps=1, flow.order={flow.order}: one step has no memory, and its "
                    "weights mean nothing; use 2 or more"
                )
            weights = cast(Any, flow).order_weights.to(z.dtype)
            return solve_distributed(rhs, z, *times, weights, num_steps)
        return solve_fractional(rhs, z, *times, num_steps)

    def _require_precision(self, z: Tensor) -> None:
        half = z.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled(
            z.device.type
        )
        if half and self.adjoint:
            raise ConfigError(
                f"solver.adjoint=true: {self.method} and its adjoint need single precision; use "
                "trainer.precision=32-true"
            )

    def _grid(self, num_steps: int, rhs: RightHandSide, z: Tensor, times: Tensor) -> Tensor:
        if self.method == "explicit_adams" and num_steps > STABLE_STEPS:
            self._warn_once(
                f"solver.num_steps={num_steps}: torchdiffeq raises the order of explicit_adams to "
                f"12, which loses all accuracy well above {STABLE_STEPS} steps; prefer "
                "implicit_adams or rk4"
            )
        # A grid, not a step size, since 1 / num_steps rounds and can add a step.
        start, end = times[0].item(), times[-1].item()
        return torch.linspace(start, end, num_steps + 1, dtype=times.dtype).to(times)

    def _counted(self, rhs: RightHandSide, t_end: float) -> RightHandSide:
        """Return the right-hand side of one solve on [0, t_end] with its evaluations counted."""
        if isinstance(t_end, Tensor):
            raise ConfigError(
                "flow.t_end: expected a number, got a tensor, which would have no gradient; learn "
                "a rate that multiplies the derivative instead"
            )
        count = 0

        def evaluate(t: Tensor, z: Tensor) -> Tensor:
            nonlocal count
            if count == self.max_nfe:
                reached = f"{float(t.detach()):.4g} of {t_end:g}"
                raise TrainingError(
                    f"solver.max_nfe={self.max_nfe}: {self.method} was at t={reached} after "
                    f"{count} evaluations; loosen its tolerance, take fewer steps, or raise the "
                    "limit"
                )
            count += 1
            slope = rhs(t, z)
            shape = tuple(getattr(slope, "shape", ()))
            if shape != tuple(z.shape):  # it would be broadcast
                raise ConfigError(
                    f"flow: expected a derivative of the state's shape {tuple(z.shape)}, got "
                    f"{shape or type(slope).__name__}; correct what forward returns"
                )
            return slope

        return evaluate

    def _warn_once(self, message: str) -> None:
        """Log a warning once, not in each solve of an epoch."""
        if message not in self._logged:
            self._logged.add(message)
            log.warning(message)
