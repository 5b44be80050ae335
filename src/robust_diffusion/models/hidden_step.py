"""One hidden layer's step by itself, the unit that timings measure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.errors import ConfigError

FEWEST_LAYERS = 3


@dataclass(frozen=True)
class HiddenStep:
    """A step that can be taken again and again from the same state."""

    kind: Literal["diffusion", "aggregation"]  # an `aggregation` unless it is a graph PDE's
    width: int  # features per node of the state
    run: Callable[[], Tensor]  # takes the step; the state stays as it is


@runtime_checkable
class HasHiddenStep(Protocol):
    """A model whose second layer can be run by itself."""

    def hidden_step(self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]) -> HiddenStep:
        """The step of the second layer, from the state with which a forward pass enters it.

        Work that a forward pass does once for all layers, such as sorting the edges or normalising
        their weights, is done when this returns.
        """


def check_hidden_layers(num_layers: int) -> None:
    """Raise a ConfigError for a model whose second layer is its last."""
    if num_layers < FEWEST_LAYERS:
        raise ConfigError(
            f"model.num_layers={num_layers}: a layer between two hidden ones is timed; "
            f"use at least {FEWEST_LAYERS}"
        )
