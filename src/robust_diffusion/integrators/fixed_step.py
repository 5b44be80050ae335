"""Integration by equal steps: bit for bit as in torchdiffeq, or of fractional order."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

RightHandSide = Callable[[Tensor, Tensor], Tensor]

_Step = Callable[[RightHandSide, Tensor, Sequence[Tensor], float], Tensor]


@dataclass(frozen=True)
class _Method:
    """An explicit Runge-Kutta method."""

    nodes: tuple[float, ...]  # times of the evaluations, in steps, in [0, 1]
    step: _Step  # from right-hand side, state, these times and step length to the next state


def solve_fixed_step(
    rhs: RightHandSide, z: Tensor, t_end: float, method: _Method, num_steps: int
) -> Tensor:
    """Solve dZ/dt = rhs(t, Z), Z(0) = z, for Z(t_end), in equal steps.

    Nothing is read back from the device.
    """
    by_step, lengths = _stages(t_end, method.nodes, num_steps, z.dtype, z.device)
    for stage_times, dt in zip(by_step, lengths, strict=True):
        z = method.step(rhs, z, stage_times, dt)
    return z


@lru_cache(maxsize=64)
def _stages(
    t_end: float,
    nodes: tuple[float, ...],
    num_steps: int,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[list[tuple[Tensor, ...]], list[float]]:
    """Return the times of every step's evaluations, and the lengths of the steps.

    They are cached, since a copy from the host cannot be part of a CUDA graph.
    """
    with torch.inference_mode(mode=False):
        grid = torch.linspace(0.0, t_end, num_steps + 1, dtype=dtype)
        starts, ends = grid[:-1], grid[1:]
        lengths = ends - starts
        times = [ends if node == 1 else starts + lengths * node for node in nodes]
        by_step = torch.stack(times, 1).to(device, non_blocking=True)
        return [step.unbind() for step in by_step], lengths.tolist()


def _times(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else x * factor


def _plus(total: Tensor, *terms: Tensor) -> Tensor:
    """Add terms to a total that nothing else reads, in its memory if their types agree.

    A sum in new memory takes up to twice the time, since it does not lie in the cache yet.
    """
    for term in terms:
        total = total.add_(term) if total.dtype == term.dtype else total + term
    return total


def _euler(rhs: RightHandSide, z: Tensor, t: Sequence[Tensor], dt: float) -> Tensor:
    return z + _times(rhs(t[0], z), dt)


def _rk4(rhs: RightHandSide, z: Tensor, t: Sequence[Tensor], dt: float) -> Tensor:
    """Take a step of the 3/8 rule, which torchdiffeq calls rk4."""
    first = rhs(t[0], z)
    second = rhs(t[1], _plus(_times(first, dt) * (1 / 3), z))
    third = rhs(t[2], _plus(_times(second - first * (1 / 3), dt), z))
    fourth = rhs(t[3], _plus(_times(_plus(first - second, third), dt), z))
    total = _plus((second + third).mul_(3), first, fourth)
    return _plus(_times(total, dt).mul_(0.125), z)


METHODS = {
    "euler": _Method((0.0,), _euler),
    "rk4": _Method((0.0, 1 / 3, 2 / 3, 1.0), _rk4),
}
"""Methods by torchdiffeq's names; the others of fixed steps run in torchdiffeq."""


def solve_fractional(
    rhs: RightHandSide, z: Tensor, t_end: float, order: float, num_steps: int
) -> Tensor:
    r"""Solve D^order Z = rhs(t, Z), Z(0) = z, with the derivative of Caputo, for Z(t_end).

    This is the fractional predictor, an Adams-Bashforth method of one step: with steps of length h,

    .. math:: Z_{k+1} = Z_0 + \frac{h^\alpha}{\Gamma(\alpha + 1)}
        \sum_{j=0}^{k} ((k + 1 - j)^\alpha - (k - j)^\alpha) f_j

    Each step sums over all earlier right-hand sides, which stay in memory. At order 1 it is Euler's
    method. Its error at t_end falls with the first power of h.

    Reference: Diethelm, Ford, Freed 2004, "Detailed error analysis for a fractional Adams method";
    FROND, arXiv:2404.17099.

    Args:
        rhs: The right-hand side.
        z: Initial state, any shape.
        t_end: End of the integration period [0, t_end].
        order: alpha, in (0, 1].
        num_steps: Number of equal steps, at least 1.
    """
    steps, _ = _stages(t_end, (0.0,), num_steps, z.dtype, z.device)
    speed = (t_end / num_steps) ** order / math.gamma(order + 1)
    past: list[Tensor] = []
    state = z
    for (time,) in steps:
        past.append(rhs(time, state))
        ages = range(len(past), 0, -1)
        state = z
        for age, slope in zip(ages, past, strict=True):
            state = state + (speed * (age**order - (age - 1) ** order)) * slope
    return state


def solve_distributed(
    rhs: RightHandSide,
    z: Tensor,
    t_end: float,
    orders: Sequence[float],
    weights: Float[Tensor, " j"],
    num_steps: int,
) -> Tensor:
    r"""Solve sum_j w_j D^{alpha_j} Z = rhs(t, Z), Z(0) = z, with the derivatives of Caputo.

    The method is Grünwald-Letnikov differences, explicit in the right-hand side: with steps of
    length h and coefficients c_0 = 1, c_k = c_{k - 1} (1 - (alpha + 1) / k),

    .. math:: \sum_j w_j h^{-\alpha_j} \sum_{k=0}^{n} c^{(j)}_k (Z_{n - k} - Z_0) = f(Z_{n - 1})

    is solved for Z_n. Each step sums over all earlier states, which stay in memory. With order 1
    alone it is Euler's method. Its error at t_end falls with the first power of h.

    Reference: Podlubny 1999, "Fractional Differential Equations", ch. 7; DRAGON, arXiv:2411.05274.

    Args:
        rhs: The right-hand side.
        z: Initial state, any shape.
        t_end: End of the integration period [0, t_end].
        orders: alpha_j, each in (0, 1].
        weights: w_j, positive.
        num_steps: Number of equal steps, at least 1.
    """
    steps, _ = _stages(t_end, (0.0,), num_steps, z.dtype, z.device)
    scale = [weights[j] * (num_steps / t_end) ** alpha for j, alpha in enumerate(orders)]
    present = torch.stack(scale).sum()
    coefficients = [1.0] * len(orders)
    memory: list[Tensor] = []  # by age
    moved: list[Tensor] = []  # Z_n - Z_0
    state = z
    for age, (time,) in enumerate(steps, 1):
        total = rhs(time, state)
        for past, weight in zip(reversed(moved), memory, strict=True):
            total = total - weight * past
        coefficients = [c * (1 - (a + 1) / age) for c, a in zip(coefficients, orders, strict=True)]
        parts = [w * c for w, c in zip(scale, coefficients, strict=True)]
        memory.append(torch.stack(parts).sum())
        moved.append(total / present)
        state = z + moved[-1]
    return state
