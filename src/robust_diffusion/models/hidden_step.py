"""What one hidden layer does with its state, by itself: the thing that the table of times times."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.errors import ConfigError

FEWEST_LAYERS = 3


@dataclass(frozen=True)
class HiddenStep:
    """A step that is ready to be taken, again and again from the same state.

    Args:
        kind: The `diffusion` of a graph PDE, or the `aggregation` of another network.
        width: Features per node of the state.
        run: Takes the step, and leaves the state as it is.
    """

    kind: Literal["diffusion", "aggregation"]
    width: int
    run: Callable[[], Tensor]


@runtime_checkable
class HasHiddenStep(Protocol):
    """A model whose second layer can be run by itself."""

    def hidden_step(self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]) -> HiddenStep:
        """The step of the second layer, from the state with which a forward pass enters it.

        What a forward pass does once for all its layers, such as sorting the edges or normalising
        their weights, has been done when this returns.

        Args:
            x: Node features.
            edge_index: Edges.

        Raises:
            ConfigError: The second layer is no hidden one.
        """


def check_hidden_layers(num_layers: int) -> None:
    """Refuse a model whose second layer is its last.

    Args:
        num_layers: Number of layers.

    Raises:
        ConfigError: There are too few.
    """
    if num_layers < FEWEST_LAYERS:
        raise ConfigError(
            f"model.num_layers={num_layers}: a layer between two hidden ones is timed; "
            f"use at least {FEWEST_LAYERS}"
        )
