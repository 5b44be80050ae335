"""Frame of the baselines: layer after layer, among them PyG's, whose sums over edges are ours."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric import nn as pyg

from robust_diffusion.checks import Count, Layers, Probability, Width, validated
from robust_diffusion.errors import ConfigError
from robust_diffusion.operators import (
    Graph,
    edge_softmax,
    gather_dst,
    gather_src,
    graph_with_degree,
    spmm,
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


SMALLEST_SQUARE = 1e-12
"""Keeps the gradient of a square root finite at 0."""

POOLED_AT_A_TIME = 320
"""Channels of GraphSAGE's projection: of thousands, as of bags of words, a part stays in cache.

Features of GRB's Cora, 302, are one part, so that its published runs keep their bits.
"""


class GCNConv(pyg.GCNConv):  # type: ignore[misc]
    """Weighted sum over incoming edges of x W, plus bias; the graph's weights are as they are."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, normalize=False)

    def forward(self, x: Float[Tensor, "n f"], graph: Graph) -> Float[Tensor, "n d"]:
        """Features of every node's neighbourhood."""
        return spmm(graph.weight, self.lin(x), graph) + self.bias  # type: ignore[no-any-return]


class GATConv(pyg.GATConv):  # type: ignore[misc]
    """Additive attention over incoming edges, an edge counting by its weight in the softmax."""

    def forward(self, x: Float[Tensor, "n f"], graph: Graph) -> Float[Tensor, "n d"]:
        """Features of every node's neighbourhood, with heads concatenated or averaged."""
        projected = self.lin(x).view(-1, self.heads, self.out_channels)
        at_dst = (projected * self.att_dst).sum(-1)
        at_src = (projected * self.att_src).sum(-1)
        scores = gather_dst(at_dst, graph) + gather_src(at_src, graph)
        attention = edge_softmax(F.leaky_relu(scores, self.negative_slope), graph)
        heads = [
            spmm(attention[:, h].contiguous(), projected[:, h], graph) for h in range(self.heads)
        ]
        out = torch.cat(heads, 1) if self.concat else torch.stack(heads).mean(0)
        return out + self.bias  # type: ignore[no-any-return]


class SAGEConv(pyg.SAGEConv):  # type: ignore[misc]
    """W x + W' of the root mean square, over incoming edges, of the projected neighbours.

    Deviation: Hamilton et al. pool by the maximum; GRB, whose choice this is, by the root mean
    square, since powers closer to the maximum make the gradient explode.
    With `project_root` the node itself is projected too, relu(P x) instead of x.
    """

    def __init__(self, in_channels: int, out_channels: int, *, project_root: bool = False) -> None:
        super().__init__(in_channels, out_channels, project=True)
        self.project_root = project_root

    def forward(self, x: Float[Tensor, "n f"], graph: Graph) -> Float[Tensor, "n d"]:
        """Features of every node and its neighbourhood; the weights are those of a mean."""
        weights, biases = (
            part.split(POOLED_AT_A_TIME) for part in (self.lin.weight, self.lin.bias)
        )
        pooled, roots = [], []
        for weight, bias in zip(weights, biases, strict=True):
            projected = F.linear(x, weight, bias).relu()
            squares = spmm(graph.weight, projected.square(), graph)
            pooled.append(torch.sqrt(squares + SMALLEST_SQUARE))
            if self.project_root:
                roots.append(projected)
        root = torch.cat(roots, 1) if self.project_root else x
        return self.lin_l(torch.cat(pooled, 1)) + self.lin_r(root)  # type: ignore[no-any-return]


class GINConv(pyg.GINConv):  # type: ignore[misc]
    """MLP of (1 + eps) x plus the weighted sum over incoming edges.

    The MLP begins with a Linear. Where that narrows the features, as in the first layer, it is
    taken before the sum, which then is one of fewer channels: both are linear.
    """

    def forward(self, x: Float[Tensor, "n f"], graph: Graph) -> Float[Tensor, "n d"]:
        """Features of every node and its neighbourhood; the graph has no self-loops."""
        first = self.nn[0]
        if first.in_features <= first.out_features:
            return self.nn(self._summed(x, graph))  # type: ignore[no-any-return]
        summed = self._summed(F.linear(x, first.weight), graph) + first.bias
        return self.nn[1:](summed)  # type: ignore[no-any-return]

    def _summed(self, x: Tensor, graph: Graph) -> Tensor:
        return (1 + self.eps) * x + spmm(graph.weight, x, graph)  # type: ignore[no-any-return]


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
