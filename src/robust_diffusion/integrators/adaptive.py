"""Dormand and Prince's method of order 5, with torchdiffeq's control of the step."""

import math

import torch
from torch import Tensor

from robust_diffusion.integrators.fixed_step import RightHandSide

ORDER = 5
SAFETY, LARGEST_GROWTH, LARGEST_SHRINKAGE = 0.9, 10.0, 0.2
"""Control of the step, relative to the step before."""

NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
"""Times of the stages after the first, in steps; the last is the first of the next step."""

STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
"""Coefficients of the earlier stages' derivatives; those of the last stage are the solution's."""

ERROR = (
    35 / 384 - 1951 / 21600,
    0.0,
    500 / 1113 - 22642 / 50085,
    125 / 192 - 451 / 720,
    -2187 / 6784 + 12231 / 42400,
    11 / 84 - 649 / 6300,
    -1 / 60,
)
"""Coefficients of the difference to the solution of order 4."""

MIDDLE = (
    6025192743 / 30085553152 / 2,
    0.0,
    51252292925 / 65400821598 / 2,
    -2691868925 / 45128329728 / 2,
    187940372067 / 1594534317056 / 2,
    -1776094331 / 19743644256 / 2,
    11237099 / 235043384 / 2,
)
"""Coefficients of the state in the middle of a step (Shampine 1986)."""


class StepUnderflowError(Exception):
    """The step shrank below rounding, or the state is not finite."""


def solve_adaptive(
    rhs: RightHandSide, z: Tensor, t_end: float, *, rtol: float, atol: float
) -> Tensor:
    """Solve dZ/dt = rhs(t, Z), Z(0) = z, for Z(t_end), by steps that keep a tolerance.

    The norm of the error, the first step, the control of the step, and the polynomial that gives
    the state at `t_end` are torchdiffeq's, so that it takes the same steps. The lengths of the
    steps count as constants in the derivative.

    Raises:
        StepUnderflowError: A step shrank below rounding, or the state is not finite.
    """

    def attempt(z: Tensor, first: Tensor, t: float, dt: float) -> tuple[Tensor, ...]:
        derivatives, end = [first], z
        for node, coefficients in zip(NODES, STAGES, strict=True):
            end = _combine(z, derivatives, [dt * a for a in coefficients])
            derivatives.append(rhs(z.new_full((), t + node * dt), end))
        return end, *derivatives[1:]

    t = 0.0
    first = rhs(z.new_full((), t), z)
    dt = _first_step(rhs, z, first, rtol, atol)
    while True:
        if not (math.isfinite(dt) and t + dt > t):
            raise StepUnderflowError
        end, *later = attempt(z, first, t, dt)
        derivatives = [first, *later]
        ratio = _error_ratio(z, end, derivatives, dt, rtol, atol)
        if ratio <= 1:
            if t + dt >= t_end:
                return _combine(z, derivatives, _at(min((t_end - t) / dt, 1.0), dt))
            t, z, first = t + dt, end, later[-1]
        dt *= _growth(ratio)


@torch.no_grad()
def _first_step(rhs: RightHandSide, z: Tensor, first: Tensor, rtol: float, atol: float) -> float:
    """Return the length of the first step.

    Reference: Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, sec. II.4.
    """
    scale = atol + rtol * z.abs()
    by_state, by_slope = torch.stack([_rms(z / scale), _rms(first / scale)]).tolist()
    if not math.isfinite(by_state + by_slope):
        raise StepUnderflowError
    tried = 1e-6 if min(by_state, by_slope) < 1e-5 else 0.01 * by_state / by_slope
    second = rhs(z.new_full((), tried), torch.add(z, first, alpha=tried))
    by_curvature = _rms((second - first) / scale).item() / tried
    if max(by_slope, by_curvature) <= 1e-15:
        return min(100 * tried, max(1e-6, 1e-3 * tried))
    wanted: float = (0.01 / max(by_slope, by_curvature)) ** (1 / ORDER)
    return min(100 * tried, wanted)


@torch.no_grad()
def _error_ratio(
    z: Tensor, end: Tensor, derivatives: list[Tensor], dt: float, rtol: float, atol: float
) -> float:
    """Return the root mean square of error over tolerance; a step with at most 1 is accepted."""
    error = derivatives[0] * (dt * ERROR[0])
    for derivative, factor in zip(derivatives[1:], ERROR[1:], strict=True):
        error.add_(derivative, alpha=dt * factor)
    tolerance = torch.maximum(z.abs(), end.abs()).mul_(rtol).add_(atol)
    return _rms(error.div_(tolerance)).item()


def _growth(ratio: float) -> float:
    """Return the ratio of the next step's length to this one's."""
    if math.isnan(ratio):
        raise StepUnderflowError
    if ratio == 0:
        return LARGEST_GROWTH
    smallest = 1.0 if ratio < 1 else LARGEST_SHRINKAGE
    growth: float = SAFETY / ratio ** (1 / ORDER)
    return min(LARGEST_GROWTH, max(growth, smallest))


def _at(x: float, dt: float) -> list[float]:
    """Return the factors of the derivatives in the state at share x of a step.

    They evaluate the polynomial of order 4 through the states at 0, 1/2 and 1 and the derivatives
    at 0 and 1, with the states written out as sums over derivatives.
    """
    by_end = x**2 * (-5 + x * (14 - 8 * x))
    by_middle = 16 * x**2 * (1 - x) ** 2
    factors = [
        by_end * weight + by_middle * middle
        for weight, middle in zip((*STAGES[-1], 0.0), MIDDLE, strict=True)
    ]
    factors[0] += x * (1 + x * (-4 + x * (5 - 2 * x)))
    factors[-1] += x**2 * (1 + x * (-3 + 2 * x))
    return [dt * factor for factor in factors]


def _combine(z: Tensor, derivatives: list[Tensor], factors: list[float]) -> Tensor:
    for derivative, factor in zip(derivatives, factors, strict=True):
        if factor:
            z = torch.add(z, derivative, alpha=factor)
    return z


def _rms(values: Tensor) -> Tensor:
    return values.square().mean().sqrt()
