"""Base of models that are a stack of layers, and the interface for timing one of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.nn.dense import Linear

from robust_diffusion.errors import ConfigError
from robust_diffusion.operators import (
    AnyFeatures,
    Graph,
    graph_with_degree,
    symmetric_weights,
)

FEWEST_LAYERS = 3


@dataclass(frozen=True)
class HiddenStep:
    """A step of a hidden layer, which timings run many times from the same state."""

    kind: Literal["diffusion", "aggregation"]  # `diffusion` for graph PDEs
    width: int  # features per node of the state
    run: Callable[[], Tensor]  # takes the step, without changing the state


@runtime_checkable
class HasHiddenStep(Protocol):
    """A model whose second layer can be run separately."""

    def hidden_step(self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]) -> HiddenStep:
        """Return the step of the second layer, from the state in which a forward pass reaches it.

        Work that a forward pass does once for all layers, such as sorting the edges or normalising
        their weights, is done before this returns.
        """


def check_hidden_layers(num_layers: int) -> None:
    """Raise a ConfigError for a model whose second layer is its last."""
    if num_layers < FEWEST_LAYERS:
        raise ConfigError(
            f"model.num_layers={num_layers}: a layer between two hidden ones is timed; "
            f"use at least {FEWEST_LAYERS}"
        )


Apply = Callable[[nn.Module, AnyFeatures], Tensor]
"""Apply one layer to normalised features."""


def run_layer(layer: Any, x: AnyFeatures) -> Any:
    """Apply a layer; LayerNorm and Linear without hooks read `Features`, all others a tensor."""
    if isinstance(x, Tensor):
        return layer(x)
    if type(layer) is nn.Identity:
        return x
    if not (layer._forward_hooks or layer._forward_pre_hooks):
        if type(layer) is nn.LayerNorm:
            return x.layer_norm(layer)
        if type(layer) in (nn.Linear, Linear):
            return x.linear(layer.weight, layer.bias)
    return layer(x.dense())


def takes_features(model: object) -> bool:
    """Return whether a model reads `Features`; a subclass or compiled code may need a tensor."""
    in_package = type(model).__module__.startswith("robust_diffusion.")
    is_compiled = getattr(model, "_compiled_call_impl", None) is not None
    return in_package and not is_compiled and getattr(model, "takes_features", False)


def layer_widths(
    in_channels: int, hidden_channels: int | Sequence[int], out_channels: int, num_layers: int
) -> list[int]:
    """Return the widths before, between and after layers; `hidden_channels` is one or all."""
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


class LayerStack(nn.Module, ABC):
    """Base of models with LayerNorm, layer, activation and dropout; the last has no activation.

    A subclass computes `layer_widths`, builds layers between them, passes these to `stack`, and
    defines in `along` how a layer is applied to a graph. Its constructor names every argument, and
    `@validated("model")` has a value that does not fit its annotation raise a `ConfigError`.

    Args:
        widths: Number of features before, between and after the layers.
        layer_norm: Normalise the features at the entry of each layer.
        dropout: Probability of dropping a feature at the end of each hidden layer, in [0, 1).
    """

    normalizes_by_degree = False
    takes_features = True
    activation: Callable[[Tensor], Tensor] = staticmethod(torch.relu)

    def __init__(self, widths: Sequence[int], *, layer_norm: bool, dropout: float) -> None:
        super().__init__()
        self.widths = widths
        self.layer_norm = layer_norm
        self.dropout = nn.Dropout(dropout)

    def stack(self, layers: Iterable[nn.Module], entries: Iterable[int] | None = None) -> None:
        """Set the layers in order; `entries` are their input widths if not `self.widths`."""
        self.norms = nn.ModuleList(
            nn.LayerNorm(width) if self.layer_norm else nn.Identity()
            for width in entries or self.widths[:-1]
        )
        self.layers = nn.ModuleList(layers)

    @abstractmethod
    def along(self, x: AnyFeatures, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Return the function that applies one layer; values common to all are computed here."""

    def forward(
        self,
        x: AnyFeatures,
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Return class logits of every node; edge weights are 1 by default."""
        return self.run(x, self.along(x, edge_index, edge_weight))

    def run(self, x: AnyFeatures, apply: Apply) -> Float[Tensor, "n c"]:
        """Return the features after all layers."""
        last = len(self.layers) - 1
        for i, (norm, layer) in enumerate(zip(self.norms, self.layers, strict=True)):
            z = apply(layer, run_layer(norm, x))
            x = z if i == last else self.dropout(self.activation(z))
        return z

    def hidden_step(self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]) -> HiddenStep:
        """Return the step of the second layer, after its norm; see `HasHiddenStep`."""
        check_hidden_layers(len(self.layers))
        apply = self.along(x, edge_index)
        first, second = self.layers[0], self.layers[1]
        state = self.norms[1](self.dropout(self.activation(apply(first, self.norms[0](x)))))
        return HiddenStep("aggregation", state.size(1), lambda: apply(second, state))


class NormalizedStack(LayerStack):
    """Base of stacks that sum along edges normalised by degrees, perhaps of a larger graph.

    For the arguments see `LayerStack`.
    """

    normalizes_by_degree = True

    def forward(
        self,
        x: AnyFeatures,
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        degree: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Return class logits of every node; `degree`, with self-loops, replaces this graph's."""
        return self.run(x, self.along(x, edge_index, edge_weight, degree))

    def along(
        self,
        x: AnyFeatures,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        degree: Tensor | None = None,
    ) -> Apply:
        """Return the function that applies a layer along the normalised edges."""
        graph, degree = graph_with_degree(x, edge_index, edge_weight, degree)
        graph = replace(graph, weight=self.normalized(graph, degree))
        return lambda layer, x: layer(x, graph)

    def normalized(self, graph: Graph, degree: Float[Tensor, " n"]) -> Float[Tensor, " e"]:
        """Return the edge weights of D^-1/2 (A + I) D^-1/2."""
        return symmetric_weights(graph, degree)
