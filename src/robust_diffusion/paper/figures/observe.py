"""One layer of a graph neural PDE: its state, its map in the plane, its edge weights by class."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.stats import rankdata
from sklearn.manifold import TSNE
from torch import Tensor, nn

from robust_diffusion.checks import check_number, check_whole
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Flow
from robust_diffusion.models.graph_pde import PDELayer
from robust_diffusion.operators import Graph

LAST_HIDDEN = -2
"""Default layer: the last one whose state is a representation.

The state of the very last layer is the logits: a map of it shows the classifier's decision. The
paper's figures are about the attention between representations, those of the layer before.
"""

MIN_NODES = 4
"""Fewest nodes for t-SNE; fewer are laid out on a circle."""

Statistics = dict[str, float | None]
"""By name, those of `edge_statistics`."""


@dataclass(frozen=True)
class Observation:
    """One layer's state after diffusion, and its edges without self-loops."""

    z: Float[Tensor, "n d"]  # end of the diffusion, before ReLU and dropout
    src: Int[Tensor, " e"]
    dst: Int[Tensor, " e"]
    carried: Float[Tensor, " e"]  # weight with which the flow carries features, at that state
    attention: Float[Tensor, " e"]  # A(Z) before any modulation; the weights where there is none
    layer: int  # counted from 0


def observe(
    model: nn.Module,
    x: Float[Tensor, "n f"],
    edge_index: Int[Tensor, "2 e"],
    *,
    layer: int = LAST_HIDDEN,
) -> Observation:
    """Observe one layer of a trained stack of graph neural PDEs; leaves it in eval mode.

    The layer counts from the end where negative; of a model with one layer, -2 is that one.
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
        flow.register_forward_hook(lambda *seen: graphs.append(seen[2]["graph"]), with_kwargs=True),
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
    if not check_whole("--layer", layer, at_least=-num_layers) < num_layers:
        raise ConfigError(f"--layer {layer}: the model has {num_layers} layers, counted from 0")
    return layer % num_layers


def tsne(z: Float[ndarray, "n d"], *, seed: int, perplexity: float = 30.0) -> Float[ndarray, "n 2"]:
    """t-SNE of the representations, the same for the same input and seed.

    Started from the principal components, so that the large-scale layout has a meaning. Positions
    are centred, the larger of the two extents from -1 to 1. The perplexity, the effective number of
    neighbours, is above 0; it is lowered where there are too few nodes.

    Reference: van der Maaten and Hinton 2008; Kobak and Berens 2019, arXiv:1902.07023 (start).
    """
    n = len(z)
    wanted = check_number("--perplexity", perplexity, above=0)
    if n < MIN_NODES or not (z != z[0]).any():
        angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    method = TSNE(
        2,
        perplexity=min(wanted, (n - 1) / 3),
        init="pca" if min(z.shape) > 1 else "random",
        learning_rate="auto",
        random_state=seed,
    )
    layout = method.fit_transform(np.asarray(z, np.float64)).astype(np.float64)
    low, high = layout.min(0), layout.max(0)
    half = max((high - low).max() / 2, 1e-12)
    return (layout - (low + high) / 2) / half  # type: ignore[no-any-return]


def edge_statistics(
    weight: Float[ndarray, " e"],
    src: Int[ndarray, " e"],
    dst: Int[ndarray, " e"],
    label: Int[ndarray, " n"],
) -> Statistics:
    """Statistics of directed edges inside classes (intra) and between them (inter).

    Args:
        weight: At least 0.
        src: Of each edge, none of them a self-loop.
        dst: Of each edge.
        label: Class of each node.

    Returns:
        `intra_edges` and `inter_edges`, numbers; `intra_mean` and `inter_mean`, of the weights;
        `inter_share` of all weight, in 0..1; `inter_preference`, the mean of weight / mean weight
        at its node, 1 if unrelated; `inter_above_intra`, a probability, ties half, 0.5 if
        unrelated to classes; `evenness`, entropy at a node / its largest value, 1 if all weigh the
        same. `None` where there are no edges of a kind.
    """
    weight = weight.astype(np.float64)
    inter = label[src] != label[dst]
    n = label.size
    degree = np.bincount(dst, minlength=n)
    total = np.bincount(dst, weights=weight, minlength=n)
    arriving = total[dst]
    # A node to which no weight arrives prefers none of its edges.
    share = np.divide(weight, arriving, out=1 / degree[dst], where=arriving > 0)
    entropy = np.bincount(dst, weights=-share * np.log(np.maximum(share, 1e-300)), minlength=n)
    several = (degree > 1) & (total > 0)
    intra_edges, inter_edges = int((~inter).sum()), int(inter.sum())
    above = rankdata(weight)[inter].sum() - inter_edges * (inter_edges + 1) / 2
    return {
        "intra_edges": intra_edges,
        "inter_edges": inter_edges,
        "intra_mean": _mean(weight[~inter]),
        "inter_mean": _mean(weight[inter]),
        "inter_share": _ratio(weight[inter].sum(), weight.sum()),
        "inter_preference": _mean((share * degree[dst])[inter]),
        "inter_above_intra": _ratio(above, intra_edges * inter_edges),
        "evenness": _mean(entropy[several] / np.log(degree[several])),
    }


def _mean(values: Float[ndarray, " k"]) -> float | None:
    return float(values.mean()) if values.size else None


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None
