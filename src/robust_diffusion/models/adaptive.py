"""The same trained model with another derivative or solver, for attacks that look through it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.errors import ConfigError
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models.checked import copy_of, dtype_of, is_random
from robust_diffusion.models.guard import Guard
from robust_diffusion.operators import Gradient

DRAWS = 8
"""Forward passes that a model that samples is averaged over."""


@runtime_checkable
class HasAdaptiveForm(Protocol):
    """A module whose gradient is not the one to attack it by.

    A defence that prunes or truncates declares a straight-through gradient, a PDE layer that it is
    differentiated through its steps and not by the adjoint equation.
    """

    def make_adaptive(self) -> bool:
        """Switch to the adaptive form, in place; true if anything changed."""


class StraightThrough:
    """A model that prunes or truncates its graph, with a `gradient` that says how that is passed.

    Its adaptive form is differentiated as if nothing were left out.
    """

    gradient: Gradient

    def make_adaptive(self) -> bool:
        """Let a gradient through to what is pruned; see `HasAdaptiveForm`."""
        before, self.gradient = self.gradient, "straight_through"
        return before != "straight_through"


class MeanOverDraws(nn.Module):
    """Mean logits of several passes of a model that samples by PyTorch's global generator.

    Its gradient is that of the expectation over draws, estimated from these draws.

    Reference: expectation over transformation, Athalye et al. 2018, arXiv:1802.00420.
    """

    def __init__(self, model: Callable[..., Tensor], draws: int = DRAWS) -> None:
        super().__init__()
        self.model = model
        self.draws = draws

    def forward(self, x: Tensor, edge_index: Tensor, *rest: Any) -> Float[Tensor, "n c"]:
        """Mean of the logits."""
        passes = [self.model(x, edge_index, *rest) for _ in range(self.draws)]
        return torch.stack(passes).mean(0)


def adaptive_form(model: nn.Module) -> nn.Module:
    """The form of a model that an attack that knows its defence differentiates.

    Each module declares its own by `make_adaptive`; a model with a module that has a true attribute
    `samples` is averaged over draws.

    The result is a copy with the same weights, or the model itself if nothing is declared.
    """
    adapted = copy_of(model)
    changed = [
        module.make_adaptive()
        for module in adapted.modules()
        if isinstance(module, HasAdaptiveForm)
    ]
    form = adapted if any(changed) else model
    return MeanOverDraws(form) if is_random(model) else form


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

    It takes `refine` steps for each step of the model's solver. A solver that picks its steps keeps
    its method, at a hundredth of its tolerances, though not below the rounding of the weights.
    """
    model = copy_of(model)
    solvers = _solvers(model)
    rounding = torch.finfo(dtype_of(model, torch.float32)).eps
    for module, solver in solvers:
        size, rtol, atol = solver.step_size, solver.rtol, solver.atol
        if rtol and atol:
            rtol = max(rtol / 100, min(rtol, rounding))
            most = solver.max_nfe and 20 * solver.max_nfe
            module.solver = replace(solver, rtol=rtol, atol=atol / 100, max_nfe=most)
            continue
        module.solver = Solver(
            method,  # type: ignore[arg-type]
            num_steps=solver.num_steps and refine * solver.num_steps,
            step_size=size and size / refine,
        )
    return model if solvers else None


def _solvers(model: nn.Module) -> list[tuple[Any, Solver]]:
    """The modules that solve an equation, and by what."""
    pairs = [(module, getattr(module, "solver", None)) for module in model.modules()]
    return [(module, solver) for module, solver in pairs if isinstance(solver, Solver)]
