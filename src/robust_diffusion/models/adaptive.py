"""Copies of a trained model with another derivative or solver, for attacks and checks."""

from dataclasses import replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import nn

from robust_diffusion.errors import ConfigError
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models.guard import Guard
from robust_diffusion.models.modules import copy_of, dtype_of
from robust_diffusion.operators import Gradient


@runtime_checkable
class HasAdaptiveForm(Protocol):
    """A module that should be attacked through another gradient than its default one.

    A defence that prunes or truncates declares a straight-through gradient. A PDE layer declares
    that it is differentiated through its steps instead of the adjoint equation.
    """

    def make_adaptive(self) -> bool:
        """Switch to the adaptive form, in place; true if anything changed."""


class SwitchableGradient:
    """A model that prunes or truncates its graph; `gradient` selects how that is differentiated.

    Its adaptive form is differentiated as if nothing were pruned or truncated, unless the class
    declares another gradient.
    """

    gradient: Gradient
    adaptive_gradient: ClassVar[Gradient] = "straight_through"

    def make_adaptive(self) -> bool:
        """Switch to the gradient of the adaptive form; see `HasAdaptiveForm`."""
        before, self.gradient = self.gradient, self.adaptive_gradient
        return before != self.gradient


def adaptive_form(model: nn.Module) -> nn.Module:
    """Return the form of a model that an attack with knowledge of its defence differentiates.

    Each module declares its form in `make_adaptive`. The result is a copy with the same weights, or
    the model itself if no module declares a form; see `Victim.adaptive`.
    """
    adapted = copy_of(model)
    changed = [
        module.make_adaptive()
        for module in adapted.modules()
        if isinstance(module, HasAdaptiveForm)
    ]
    return adapted if any(changed) else model


def with_gradient(model: nn.Module, gradient: Gradient) -> nn.Module:
    """Copy a model with another `gradient` of its defence, if any; outputs are the same.

    Raises:
        ConfigError: The defence has no straight-through gradient.
    """
    model = copy_of(model)
    for module in model.modules():
        if isinstance(module, SwitchableGradient):
            if gradient == "straight_through" != module.adaptive_gradient:
                raise ConfigError(
                    f"threat.gradient: {type(module).__name__} expected exact or detached, got "
                    f"straight_through; use {module.adaptive_gradient}, its adaptive gradient"
                )
            module.gradient = gradient
        guard = getattr(module, "guard", None)
        if isinstance(guard, Guard):
            module.guard = replace(guard, gradient=gradient)  # type: ignore[assignment]
    return model


def with_adjoint(model: nn.Module, *, adjoint: bool) -> nn.Module:
    """Copy a model and differentiate its solver, if any, by the adjoint equation or directly."""
    model = copy_of(model)
    for module, solver in _solvers(model):
        module.solver = replace(solver, adjoint=adjoint)
    return model


def with_solver(model: nn.Module, method: str, *, refine: int = 1) -> nn.Module | None:
    """Copy a graph PDE with another integration method; return `None` for other models.

    The copy takes `refine` steps for each step of the model's solver. An adaptive solver keeps its
    method, with its tolerances divided by 100, but not below the rounding error of the weights.
    """
    model = copy_of(model)
    solvers = _solvers(model)
    rounding = torch.finfo(dtype_of(model, torch.float32)).eps
    for module, solver in solvers:
        rtol, atol = solver.rtol, solver.atol
        if rtol and atol:
            rtol = max(rtol / 100, min(rtol, rounding))
            most = solver.max_nfe and 20 * solver.max_nfe
            module.solver = replace(solver, rtol=rtol, atol=atol / 100, max_nfe=most)
            continue
        steps, size = solver.num_steps, solver.step_size
        steps, size = steps and refine * steps, size and size / refine
        module.solver = Solver(method, num_steps=steps, step_size=size)  # type: ignore[arg-type]
    return model if solvers else None


def _solvers(model: nn.Module) -> list[tuple[Any, Solver]]:
    """Return the modules that solve an equation, each with its solver."""
    pairs = [(module, getattr(module, "solver", None)) for module in model.modules()]
    return [(module, solver) for module, solver in pairs if isinstance(solver, Solver)]
