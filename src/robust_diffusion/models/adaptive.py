"""The adaptive form of a model: the same predictions, with gradients that an attack can follow."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.models.checked import copy_of
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
        """Switch to the adaptive form, in place.

        Returns:
            True if anything changed.
        """


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
    found = adapted if any(changed) else model
    if any(getattr(module, "samples", False) for module in model.modules()):
        return MeanOverDraws(found)
    return found
