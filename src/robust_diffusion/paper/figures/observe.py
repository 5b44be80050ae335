"""State and edge weights of one layer of a graph neural PDE."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.checks import check_whole
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Flow
from robust_diffusion.models.graph_pde import PDELayer
from robust_diffusion.operators import Graph

LAST_HIDDEN = -2
"""Default layer: the last one whose state is a representation.

The state of the very last layer is the logits: a map of it shows the classifier's decision. The
paper's figures are about the attention between representations, those of the layer before.
"""


@dataclass(frozen=True)
class Observation:
    """One layer's state after diffusion, and its edges without self-loops.

    Args:
        z: The state at the end of the diffusion, before ReLU and dropout.
        src: Source of each edge.
        dst: Destination of each edge.
        carried: Weight with which the flow carries features along each edge, at that state.
        attention: Attention A(Z) of each edge, before any modulation; for a flow without
            attention the weights themselves.
        layer: Number of the layer, from 0.
    """

    z: Float[Tensor, "n d"]
    src: Int[Tensor, " e"]
    dst: Int[Tensor, " e"]
    carried: Float[Tensor, " e"]
    attention: Float[Tensor, " e"]
    layer: int


def observe(
    model: nn.Module,
    x: Float[Tensor, "n f"],
    edge_index: Int[Tensor, "2 e"],
    *,
    layer: int = LAST_HIDDEN,
) -> Observation:
    """Observe one layer of a trained model on a graph.

    Args:
        model: Stacked graph neural PDEs; put in eval mode.
        x: Node features.
        edge_index: Source and destination of each edge.
        layer: Index of the layer, negative from the end; of a model with one layer, -2 is that one.

    Raises:
        ConfigError: The model has no flow, no such layer, or does not diffuse.
    """
    layers = getattr(model, "layers", None)
    if not isinstance(layers, nn.ModuleList) or not isinstance(layers[0], PDELayer):
        raise ConfigError(
            f"model={type(model).__name__}: has no flow to look at; use model=graph_pde or "
            "model=beltrami_guard"
        )
    number = _number(layer, len(layers))
    watched: Any = layers[number]
    flow: Flow = watched.flow
    graphs: list[Graph] = []
    states: list[Tensor] = []
    # The flow's own argument, since a guard may have pruned it and a flow may have prepared it.
    handles = [
        flow.register_forward_hook(lambda _, arguments, __: graphs.append(arguments[2])),
        watched.register_forward_hook(lambda _, __, output: states.append(output[0])),
    ]
    try:
        with torch.no_grad():
            model.eval()(x, edge_index)
    finally:
        for handle in handles:
            handle.remove()
    if not graphs:
        raise ConfigError("flow.t_end=0: nothing is diffused, so no edge has a weight; use above 0")
    z, graph = states[-1], graphs[-1]
    with torch.no_grad():
        carried, attention = flow.edge_weights(z, graph), flow.similarity(z, graph)
    edge = graph.src != graph.dst
    return Observation(z, graph.src[edge], graph.dst[edge], carried[edge], attention[edge], number)


def _number(layer: int, num_layers: int) -> int:
    if num_layers == 1 and layer == LAST_HIDDEN:
        return 0
    number = layer + num_layers if layer < 0 else layer
    if not check_whole("--layer", layer, at_least=-num_layers) < num_layers:
        raise ConfigError(f"--layer {layer}: the model has {num_layers} layers, counted from 0")
    return number
