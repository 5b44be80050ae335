"""The same trained model with another derivative, for attacks that look through it."""

from dataclasses import replace
from typing import Any

from torch import nn

from robust_diffusion.errors import ConfigError
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models.adaptive import StraightThrough
from robust_diffusion.models.checked import copy_of
from robust_diffusion.models.guard import Gradient, Guard


def with_gradient(model: nn.Module, gradient: Gradient) -> nn.Module:
    """A copy of a model with another `gradient` of its pruning or SVD, if any; same outputs."""
    model = copy_of(model)
    for module in model.modules():
        if isinstance(module, StraightThrough):
            module.gradient = gradient
        guard = getattr(module, "guard", None)
        if isinstance(guard, Guard):
            module.guard = replace(guard, gradient=gradient)  # type: ignore[assignment]
    return model


def with_adjoint(model: nn.Module, *, adjoint: bool) -> nn.Module:
    """A copy of a model whose solver, if any, is differentiated by the adjoint, or directly."""
    model = copy_of(model)
    for module, solver in _solvers(model):
        if solver.method == "scipy_solver" and not adjoint:
            raise ConfigError(
                "threat.adjoint=false: solver.method=scipy_solver needs the adjoint equation"
            )
        module.solver = with_derivative(solver, adjoint=adjoint)
    return model


def with_derivative(solver: Solver, *, adjoint: bool) -> Solver:
    """The same solver, but `scipy_solver`, differentiated by the adjoint equation or directly."""
    return replace(
        solver,
        adjoint=adjoint,
        # The adjoint is torchdiffeq's, and has no steps to keep.
        engine="auto" if adjoint else solver.engine,
        checkpoint=solver.checkpoint and not adjoint,
    )


def with_solver(model: nn.Module, method: str, *, refine: int = 1) -> nn.Module | None:
    """A copy of a graph PDE that is integrated by another method; `None` for other models.

    It takes `refine` steps for each step of the model's solver, or this number if that picks its
    steps.
    """
    model = copy_of(model)
    found = _solvers(model)
    for module, solver in found:
        size = solver.step_size
        module.solver = Solver(
            method,  # type: ignore[arg-type]
            num_steps=refine * (solver.num_steps or 1) if size is None else None,
            step_size=None if size is None else size / refine,
        )
    return model if found else None


def _solvers(model: nn.Module) -> list[tuple[Any, Solver]]:
    """The modules that solve an equation, and by what."""
    pairs = [(module, getattr(module, "solver", None)) for module in model.modules()]
    return [(module, solver) for module, solver in pairs if isinstance(solver, Solver)]
