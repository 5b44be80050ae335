"""Loops of own: lean where torchdiffeq's machinery costs time, and of fractional order."""

from robust_diffusion.integrators.adaptive import StepUnderflowError, solve_adaptive
from robust_diffusion.integrators.adjoint import checked, cut_off
from robust_diffusion.integrators.fixed_step import METHODS, RightHandSide, solve_fixed_step
from robust_diffusion.integrators.fractional import solve_fractional

__all__ = [
    "METHODS",
    "RightHandSide",
    "StepUnderflowError",
    "checked",
    "cut_off",
    "solve_adaptive",
    "solve_fixed_step",
    "solve_fractional",
]
