"""Integration loops: leaner ones than torchdiffeq's, and solvers of fractional order."""

from robust_diffusion.integrators.adjoint import checked as checked
from robust_diffusion.integrators.adjoint import cut_off as cut_off
from robust_diffusion.integrators.fixed_step import METHODS as METHODS
from robust_diffusion.integrators.fixed_step import RightHandSide as RightHandSide
from robust_diffusion.integrators.fixed_step import solve_distributed as solve_distributed
from robust_diffusion.integrators.fixed_step import solve_fixed_step as solve_fixed_step
from robust_diffusion.integrators.fixed_step import solve_fractional as solve_fractional
