"""Frame of the baselines: layer after layer."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.checks import Count, Layers, Probability, Width, validated
from robust_diffusion.errors import ConfigError
from robust_diffusion.operators import (
    Graph,
    graph_with_degree,
    symmetric_weights,
)

FEWEST_LAYERS = 3


@dataclass(frozen=True)
class HiddenStep:
    """A hidden layer's step, the unit that timings measure, again and again from one state."""

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


Apply = Callable[[nn.Module, Tensor], Tensor]
"""Applies one layer to normalised features."""


def layer_widths(
    in_channels: int, hidden_channels: int | Sequence[int], out_channels: int, num_layers: int
) -> list[int]:
    """Widths before, between and after `num_layers` layers; `hidden_channels` is one or all."""
    if isinstance(hidden_channels, Sequence):
        hidden = list(hidden_channels)
    else:
        hidden = [hidden_channels] * (num_layers - 1)
    if len(hidden) != num_layers - 1:
        raise ConfigError(
            f"model.hidden_channels={hidden}: {num_layers} layers need {num_layers - 1} widths, "
            "or one number for all"
        )
    return [in_channels, *hidden, out_channels]


@validated("model")
class LayerStack(nn.Module, ABC):
    """LayerNorm, layer, activation, dropout, for each layer; the last one ends with itself.

    A subclass builds layers between `widths`, hands them to `stack`, and applies one of them to a
    graph in `along`.

    Arguments as `GCN`; one that is unknown or out of range is a `ConfigError`.
    """

    normalizes_by_degree = False
    activation: Callable[[Tensor], Tensor] = staticmethod(torch.relu)

    def __init_subclass__(cls, **options: Any) -> None:
        """Check the arguments of every model by their annotations."""
        super().__init_subclass__(**options)
        validated("model")(cls)

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        out_channels: Count,
        *,
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        super().__init__()
        self.widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        self.layer_norm = layer_norm
        self.dropout = nn.Dropout(dropout)

    def stack(self, layers: Iterable[nn.Module], entries: Iterable[int] | None = None) -> None:
        """Take these layers, in order; `entries` are their input widths if not `self.widths`."""
        self.norms = nn.ModuleList(
            nn.LayerNorm(width) if self.layer_norm else nn.Identity()
            for width in entries or self.widths[:-1]
        )
        self.layers = nn.ModuleList(layers)

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


class NormalizedStack(LayerStack):
    """Layers that sum along edges normalised by the degrees, which may be those of a larger graph.

    Arguments as `LayerStack`.
    """

    normalizes_by_degree = True

    def forward(
        self,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        degree: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Class logits of every node; `degree`, self-loops included, stands for this graph's."""
        return self.run(x, self.along(x, edge_index, edge_weight, degree))

    def along(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        degree: Tensor | None = None,
    ) -> Apply:
        """Every layer sums along the normalised edges."""
        graph, degree = graph_with_degree(x, edge_index, edge_weight, degree)
        graph = replace(graph, weight=self.normalized(graph, degree))
        return lambda layer, x: layer(x, graph)

    def normalized(self, graph: Graph, degree: Float[Tensor, " n"]) -> Float[Tensor, " e"]:
        """Edge weights of D^-1/2 (A + I) D^-1/2."""
        return symmetric_weights(graph, degree)
