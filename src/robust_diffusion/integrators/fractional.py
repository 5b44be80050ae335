"""Integration of equations of fractional order in time, by equal steps."""

import math

import torch
from torch import Tensor

from robust_diffusion.integrators.fixed_step import RightHandSide, evaluate_flow


def solve_fractional(
    rhs: RightHandSide,
    z: Tensor,
    t_end: float,
    order: float,
    num_steps: int,
    *,
    recompute: bool = False,
) -> Tensor:
    r"""Solve D^order Z = rhs(t, Z), Z(0) = z, with the derivative of Caputo, for Z(t_end).

    The fractional predictor, an Adams-Bashforth method of one step: with steps of length h,

    .. math:: Z_{k+1} = Z_0 + \frac{h^\alpha}{\Gamma(\alpha + 1)}
        \sum_{j=0}^{k} ((k + 1 - j)^\alpha - (k - j)^\alpha) f_j

    Each step weighs all right-hand sides before it, which are kept. At order 1 it is Euler's
    method. Its error at t_end falls with the first power of h.

    Reference: Diethelm, Ford, Freed 2004, "Detailed error analysis for a fractional Adams method";
    FROND, arXiv:2404.17099.

    Args:
        rhs: The right-hand side.
        z: Initial state, any shape.
        t_end: End of the integration period [0, t_end].
        order: alpha, in (0, 1].
        num_steps: Number of equal steps, at least 1.
        recompute: Keep only states for the backward pass; see `solve_fixed_step`.
    """
    times = torch.linspace(0.0, t_end, num_steps + 1, dtype=z.dtype)
    times = times.to(z.device, non_blocking=True)
    speed = (t_end / num_steps) ** order / math.gamma(order + 1)
    past: list[Tensor] = []
    state = z
    for time in times[:-1]:
        past.append(evaluate_flow(rhs, time, state, recompute=recompute))
        ages = range(len(past), 0, -1)
        state = z
        for age, slope in zip(ages, past, strict=True):
            state = state + (speed * (age**order - (age - 1) ** order)) * slope
    return state
