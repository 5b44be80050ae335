"""Frame of the baselines: layer after layer, each normalised before and activated after."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.checks import Probability, validated
from robust_diffusion.models.hidden_step import HiddenStep, check_hidden_layers

Apply = Callable[[nn.Module, Tensor], Tensor]
"""Applies one layer to normalised features."""


@validated("model")
class LayerStack(nn.Module, ABC):
    """LayerNorm, layer, activation, dropout, for each layer; the last one ends with itself.

    A subclass builds the layers and applies one of them to a graph in `along`.

    Args:
        layers: The layers, in order.
        in_channels: Width at the entry of each of them.
        layer_norm: Normalise the features at the entry of each layer.
        dropout: Probability of dropping a feature at the end of each hidden layer, in [0, 1).
        activation: Follows each hidden layer.

    Raises:
        ConfigError: `dropout` out of range.
    """

    normalizes_by_degree = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Check the arguments of every model by their annotations."""
        super().__init_subclass__(**options)
        validated("model")(cls)

    def __init__(
        self,
        layers: Sequence[nn.Module],
        in_channels: Sequence[int],
        *,
        layer_norm: bool,
        dropout: Probability,
        activation: Callable[[Tensor], Tensor] = torch.relu,
    ) -> None:
        super().__init__()
        self.norms = nn.ModuleList(
            nn.LayerNorm(width) if layer_norm else nn.Identity() for width in in_channels
        )
        self.layers = nn.ModuleList(layers)
        self.dropout = nn.Dropout(dropout)
        self.activation = activation

    @abstractmethod
    def along(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """The function that applies one layer; what all layers share is computed here, once."""

    def forward(
        self,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Class logits of every node; an edge weight is 1 when absent."""
        return self.run(x, self.along(x, edge_index, edge_weight))

    def run(self, x: Float[Tensor, "n f"], apply: Apply) -> Float[Tensor, "n c"]:
        """The features after all layers."""
        last = len(self.layers) - 1
        for i, (norm, layer) in enumerate(zip(self.norms, self.layers, strict=True)):
            x = apply(layer, norm(x))
            if i < last:
                x = self.dropout(self.activation(x))
        return x

    def hidden_step(self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]) -> HiddenStep:
        """The second layer, its norm behind it; see `HasHiddenStep`."""
        check_hidden_layers(len(self.layers))
        apply = self.along(x, edge_index)
        first, second = self.layers[0], self.layers[1]
        state = self.norms[1](self.dropout(self.activation(apply(first, self.norms[0](x)))))
        return HiddenStep("aggregation", state.size(1), lambda: apply(second, state))
