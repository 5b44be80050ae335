"""Numerical integration of a flow: its method, its steps, and how it is differentiated."""

import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
Adaptive = Literal["dopri8", "dopri5", "bosh3", "fehlberg2", "adaptive_heun", "scipy_solver"]
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

    The methods are torchdiffeq's. Fixed-step Runge-Kutta methods and Adams methods of up to two
    steps run in this package's own loops, which compute the same bits in less time.

    Args:
        method: A torchdiffeq method. Fixed-step: euler, midpoint, heun2, heun3, rk4,
            explicit_adams, implicit_adams. Adaptive: dopri5, dopri8,
            bosh3, fehlberg2, adaptive_heun, scipy_solver (SciPy's RK45).
        num_steps: Number of equal steps on the integration period, at least 1; for fixed-step
            methods only, where `None` without a step size is 10. The paper's tau, see notes in
            `docs/variants.md`.
        step_size: Longest step, in time, positive, instead of `num_steps`: the period is divided
            into as few equal steps as it allows.
        rtol: Relative tolerance, positive; for adaptive methods only, where `None` is 1e-4.
        atol: Absolute tolerance, positive; for adaptive methods only, where `None` is 1e-6.
        adjoint: Differentiate by the adjoint equation, in memory that does not grow with the
            number of steps, instead of through the steps. `scipy_solver`, which runs outside
            torch, needs it.
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
        method = self.method
        steps = {"solver.num_steps": self.num_steps, "solver.step_size": self.step_size}
        setting = ", ".join(f"{key}={value}" for key, value in steps.items() if value is not None)
        if method in FIXED_STEP_METHODS:
            if self.rtol is not None or self.atol is not None:
                raise ConfigError(f"solver.rtol, solver.atol: {method} has no tolerance; drop them")
            if self.step_size is None:
                self.num_steps = self.num_steps or STEPS
                setting = f"solver.num_steps={self.num_steps}"
            elif self.num_steps is not None:
                raise ConfigError(f"{setting}: each sets the steps; give one of them")
        elif setting:
            raise ConfigError(f"{setting}: {method} picks its own steps")
        else:
            self.rtol, self.atol = self.rtol or RTOL, self.atol or ATOL
        if method == "scipy_solver" and not self.adjoint:
            raise ConfigError("solver.adjoint=false: scipy_solver needs solver.adjoint=true")
        self._watch = Watch(method, steps=setting, rtol=self.rtol, max_nfe=self.max_nfe)

    @property
    def own_loop(self) -> bool:
        """Whether a loop of this package runs, not torchdiffeq's."""
        if self.adjoint:
            return False
        if self.method in ADAMS:  # a step size rules it out: the number of steps then varies
            return self.num_steps is not None and self.num_steps <= RUNGE_KUTTA_STEPS
        return self.method in METHODS

    def steps_on(self, t_end: float) -> int | None:
        """Return the number of equal steps on [0, t_end]; `None` if the method picks its own."""
        if self.step_size is None:
            return self.num_steps
        # A quotient that is whole up to rounding, such as 1.1 / 0.1, must not add a step.
        return max(1, math.ceil(t_end / self.step_size * (1 - 1e-12)))

    def solve(
        self,
        flow: FlowLike,
        z: Float[Tensor, "n d"],
        graph: Graph,
        times: Sequence[float] | None = None,
    ) -> Float[Tensor, "*t n d"]:
        """Return the features at the end of a flow's integration period, from `z` at its start.

        Gradients reach `z`, the edge weights, what `flow.prepare` computed from them, and the
        flow's parameters, by the direct derivative and by the adjoint alike. With `times`, which
        ascend from 0 on and may exceed the period, return Z(t) at each of them; steps are as long
        as on the period, or shorter so as to end there.

        Raises:
            TrainingError: As in `integrate`.
            ConfigError: The flow depends on other tensors, in the backward pass of the adjoint; or
                a flow of fractional order is combined with a method that picks its steps, with the
                adjoint, or with `times`; or `times` with the adjoint's gradient.
        """
        graph = flow.prepare(z, graph)
        if times is None and self.own_loop:  # others follow the state's norm
            narrower, graph, features = flow.narrowed(z, graph)
            return features(self._end(flow, narrower, graph))
        state = flow.initial_state(z, graph)
        if times is None:
            return flow.features(self._end(flow, state, graph))
        if len(times) == 0:
            raise ConfigError("times=[]: expected at least one time, got none; name or drop it")
        self._require_precision(state)
        states = self.trajectory(flow, state, graph, times)
        return torch.stack([flow.features(state) for state in states])

    def trajectory(
        self, flow: FlowLike, state: Tensor, graph: Graph, times: Sequence[float]
    ) -> Iterator[Tensor]:
        """Yield the state at each time, solved from the state before.

        Steps are as long as on the flow's period, or shorter. The flow must be of first order and
        must have prepared the graph; times ascend from 0 on.
        """
        if flow.order != 1 or (self.adjoint and torch.is_grad_enabled()):
            remedy = "leave them out, or use flow.order=1 and torch.no_grad()"
            raise ConfigError(f"times={list(times)}: not of a memory, nor by the adjoint; {remedy}")
        now, period, solver = 0.0, flow.t_end or 1.0, self
        steps = self.steps_on(period)
        for t in map(float, times):
            if not now <= t < math.inf:
                raise ConfigError(f"times={list(times)}: must be finite and ascend, from 0 on")
            if t > now:
                if steps is not None:
                    share = math.ceil(steps * (t - now) / period * (1 - 1e-12))
                    solver = replace(self, num_steps=share, step_size=None)
                    solver._watch = self._watch  # warns once, of the steps that were set
                state = solver.integrate(partial(_later, flow, graph, now), state, t - now)
                now = t
            yield state

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
        rhs = self._watch.over(rhs, t_end, z.dtype)
        num_steps = self.steps_on(t_end)
        if self.own_loop:
            assert num_steps is not None
            method = METHODS["rk4" if self.method in ADAMS else self.method]
            return solve_fixed_step(rhs, z, t_end, method, num_steps)
        options: dict[str, object] = {}
        tolerances: dict[str, float | None] = {}
        if num_steps is not None:
            options["grid_constructor"] = partial(self._grid, num_steps)
        else:
            tolerances = {"rtol": self.rtol, "atol": self.atol}
            if self.method == "scipy_solver":
                options["solver"] = "RK45"
                if not torch.isfinite(z).all():  # SciPy would never return
                    raise self._stuck()
        times = torch.tensor([0.0, t_end], dtype=z.dtype, device=z.device)
        from torchdiffeq import odeint, odeint_adjoint  # late, since SciPy's solvers come along

        arguments = {"method": self.method, "options": options, **tolerances}
        try:
            with self._watch.over_corrector(z.dtype):
                if self.adjoint:
                    wanted = tuple(p for p in parameters if p.requires_grad)
                    solution = odeint_adjoint(
                        checked(rhs, wanted), z, times, adjoint_params=wanted, **arguments
                    )
                else:
                    solution = odeint(rhs, z, times, **arguments)
        except AssertionError as error:
            # torchdiffeq asserts that the step stays above the rounding unit and the state finite.
            if "underflow" not in str(error) and "non-finite" not in str(error):
                raise
            raise self._stuck() from error
        # SciPy does not raise: it returns only the times that it reached.
        if len(solution) < len(times):
            raise self._stuck()
        state: Tensor = solution[-1]
        return state

    def _fractional(self, flow: FlowLike, z: Tensor, graph: Graph) -> Tensor:
        num_steps = self.steps_on(flow.t_end)
        if self.adjoint or num_steps is None:
            fixed = f"a solver of fixed steps, such as rk4, instead of {self.method}"
            remedies = [fixed] * (num_steps is None) + ["solver.adjoint=false"] * self.adjoint
            raise ConfigError(
                f"flow.order={flow.order}: a derivative of fractional order is solved in equal "
                f"steps and differentiated through them; use {' and '.join(remedies)}"
            )
        message = f"the fractional predictor takes the steps of {self.method}"
        self._watch.tell_of_steps(f"flow.order={flow.order}: {message}", level=logging.INFO)
        if flow.t_end == 0:
            return z
        rhs = self._watch.over(partial(flow, graph=graph), flow.t_end, z.dtype)
        times = (flow.t_end, flow.order)
        if isinstance(flow.order, tuple):
            if num_steps == 1:
                self._watch.tell_of_steps(
                    f"flow.order={flow.order}: one step has no memory, and its weights mean "
                    "nothing; use solver.num_steps=2 or more"
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

    def _stuck(self) -> TrainingError:
        return TrainingError(
            f"solver={self.method}: the step shrank below rounding or the state is not finite at "
            f"rtol={self.rtol}, atol={self.atol}; loosen solver.rtol and solver.atol"
        )

    def _grid(self, num_steps: int, rhs: RightHandSide, z: Tensor, times: Tensor) -> Tensor:
        if self.method == "explicit_adams" and num_steps > STABLE_STEPS:
            self._watch.tell_of_steps(
                "torchdiffeq raises the order of explicit_adams to 12, which loses all accuracy "
                f"well above {STABLE_STEPS} steps; prefer implicit_adams or rk4"
            )
        # A grid, not a step size, since 1 / num_steps rounds and can add a step.
        start, end = times[0].item(), times[-1].item()
        return torch.linspace(start, end, num_steps + 1, dtype=times.dtype).to(times)


def _later(flow: FlowLike, graph: Graph, start: float, t: Tensor, z: Tensor) -> Tensor:
    return flow(t + start, z, graph=graph)


MANY = 10_000
"""Evaluations of one solve after which a warning is logged; the paper takes under a hundred."""

_UNSETTLED = "Functional iteration did not converge"
"""Start of torchdiffeq's warning that implicit_adams stepped before its corrector settled."""


class Watch:
    """Counter of a solver's evaluations, with warnings and limits; it changes no number.

    Args:
        name: The solver's method, for messages.
        steps: The option that sets its steps, such as `solver.num_steps=4`; empty if it picks them.
        rtol: Its relative tolerance, if it has one.
        max_nfe: Most evaluations of one solve, those of its backward pass included; `None` for no
            limit.
    """

    def __init__(self, name: str, *, steps: str, rtol: float | None, max_nfe: int | None) -> None:
        self.name = name
        self.steps = steps
        self.rtol = rtol
        self.max_nfe = max_nfe
        self._told: set[str] = set()

    def over(self, rhs: RightHandSide, t_end: float, dtype: torch.dtype) -> RightHandSide:
        """Return the right-hand side of one solve on [0, t_end] with its evaluations counted."""
        if isinstance(t_end, Tensor):
            raise ConfigError(
                "flow.t_end: expected a number, got a tensor, which would have no gradient; learn "
                "a rate that multiplies the derivative instead"
            )
        if self.rtol is not None and self.rtol < torch.finfo(dtype).eps:
            self._tell(
                "solver.rtol=%g: below the rounding of %s, %.2g, so that steps shrink and shrink",
                *(self.rtol, str(dtype).removeprefix("torch."), torch.finfo(dtype).eps),
            )
        count = 0

        def evaluate(t: Tensor, z: Tensor) -> Tensor:
            nonlocal count
            if count == self.max_nfe:
                reached = f"{float(t.detach()):.4g} of {t_end:g}"
                raise TrainingError(
                    f"solver.max_nfe={self.max_nfe}: {self.name} was at t={reached} after "
                    f"{count} evaluations; loosen its tolerance, take fewer steps, or raise the "
                    "limit"
                )
            if count == MANY:
                self._tell(
                    "solver=%s: %d evaluations in one solve, at t=%.4g of %g; solver.max_nfe or "
                    "time_limit ends what takes too long",
                    *(self.name, count, float(t.detach()), t_end),
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

    @contextmanager
    def over_corrector(self, dtype: torch.dtype) -> Iterator[None]:
        """Warn once, not at each step of an epoch, that a corrector did not settle.

        Single precision cannot settle to the required 1e-7, so there is no warning there.
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("always", message=_UNSETTLED)
            yield
        others = [w for w in caught if not str(w.message).startswith(_UNSETTLED)]
        for other in others:
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
        if len(others) < len(caught) and dtype == torch.float64:
            self.tell_of_steps(
                f"the corrector of {self.name} had not settled to 1e-7 after the 4 iterations "
                "that torchdiffeq gives it; more steps, or rk4, are more accurate"
            )

    def tell_of_steps(self, message: str, *, level: int = logging.WARNING) -> None:
        """Log a message about the steps once, such as that they are too few."""
        self._tell("%s: " + message, self.steps, level=level)

    def _tell(self, message: str, *values: object, level: int = logging.WARNING) -> None:
        """Log a message once, not in each solve of an epoch."""
        if message not in self._told:
            self._told.add(message)
            log.log(level, message, *values)
