"""Figures of trained models: one layer of each, its map in the plane, its edge weights by class."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
from annotated_types import Ge
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.special import entr
from scipy.stats import mannwhitneyu
from sklearn.manifold import TSNE
from torch import Tensor, nn

from robust_diffusion.checks import Positive, check_value
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Flow
from robust_diffusion.models.graph_pde import PDELayer
from robust_diffusion.paper.figures.draw import Panel, draw_panels
from robust_diffusion.paper.figures.spec import (
    BuiltFigure,
    FigureCell,
    FigureSpec,
    plan,
    train_cell,
)

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
    last = len(layers)
    if last == 1 and layer == LAST_HIDDEN:
        layer = 0
    if not check_value("--layer", layer, Annotated[int, Ge(-last)]) < last:
        raise ConfigError(f"--layer {layer}: the model has {last} layers, counted from 0")
    watched: Any = layers[layer]
    flow: Flow = watched.flow
    seen: dict[str, Any] = {}
    # The flow's own argument, since a guard may have pruned it and a flow may have prepared it.
    handles = [
        flow.register_forward_hook(lambda *of: seen.update(of[2]), with_kwargs=True),
        watched.register_forward_hook(lambda _, __, output: seen.update(z=output[0])),
    ]
    try:
        with torch.no_grad():
            model.eval()(x, edge_index)
    finally:
        for handle in handles:
            handle.remove()
    if "graph" not in seen:
        raise ConfigError("flow.t_end=0: nothing is diffused, so no edge has a weight; use above 0")
    z, graph = seen["z"], seen["graph"]
    with torch.no_grad():
        carried, attention = flow.edge_weights(z, graph), flow.similarity(z, graph)
    src, dst, edge = graph.src, graph.dst, graph.src != graph.dst
    return Observation(z, src[edge], dst[edge], carried[edge], attention[edge], layer % last)


def tsne(z: Float[ndarray, "n d"], *, seed: int, perplexity: float = 30.0) -> Float[ndarray, "n 2"]:
    """t-SNE of the representations, the same for the same input and seed.

    Started from the principal components, so that the large-scale layout has a meaning. Positions
    are centred, the larger of the two extents from -1 to 1. The perplexity, the effective number of
    neighbours, is above 0; it is lowered where there are too few nodes.

    Reference: van der Maaten and Hinton 2008; Kobak and Berens 2019, arXiv:1902.07023 (start).
    """
    n = len(z)
    wanted = check_value("--perplexity", perplexity, Positive)
    if n < MIN_NODES or not (z != z[0]).any():
        angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    start = "pca" if min(z.shape) > 1 else "random"
    method = TSNE(perplexity=min(wanted, (n - 1) / 3), init=start, random_state=seed)
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
    inter = label[src] != label[dst]
    weights = pd.Series(weight.astype(np.float64))
    within, between = weights[~inter], weights[inter]
    pairs = len(within) * len(between)
    arriving = weights.groupby(dst)
    share = weights / arriving.transform("sum")  # NaN at a node to which no weight arrives
    preference = (share * arriving.transform("size")).fillna(1)
    entropy = entr(share).groupby(dst).sum(min_count=1)
    found = {
        "intra_mean": within.mean(),
        "inter_mean": between.mean(),
        "inter_share": between.sum() / (weights.sum() or np.nan),
        "inter_preference": preference[inter].mean(),
        "inter_above_intra": mannwhitneyu(between, within).statistic / pairs if pairs else None,
        "evenness": (entropy / np.log(arriving.size())).mean(),  # NaN at a node of one edge
    }
    known = {key: None if pd.isna(of) else float(of) for key, of in found.items()}
    return {"intra_edges": len(within), "inter_edges": len(between), **known}


Weights = Literal["carried", "attention"]
"""Weight of a drawn edge: attention A(Z), or the weight with which the flow carries features.

Attention is named in the paper's captions and can be compared between flows: the weights
that arrive at a node sum to 1 in each. The rows of A * B do not, they sum to about 1 / degree.
"""

STATISTICS = {
    "intra_edges": "edges within",
    "inter_edges": "between",
    "intra_mean": "mean within",
    "inter_mean": "mean between",
    "inter_share": "share between",
    "inter_preference": "preference between",
    "inter_above_intra": "P(between > within)",
    "evenness": "evenness",
}
"""Columns of the printed statistics."""

NOTES = {
    "classes": "mean {inter_mean:.3f} between classes, {intra_mean:.3f} within",
    "evenness": "evenness at a node {evenness:.3f}",
}
"""Texts below a panel, where their numbers are known."""


@dataclass(frozen=True)
class Options:
    """Options of drawing."""

    layer: int = LAST_HIDDEN  # negative from the end
    perplexity: float = 30.0  # of t-SNE, above 0
    max_nodes: int = 3000  # at least 4; drawn at random from a larger graph
    weights: Weights = "attention"


def build_figure(
    spec: FigureSpec, overrides: Sequence[str], options: Options | None = None
) -> BuiltFigure:
    """Build a figure under the overrides of a run, as on its command line."""
    options = options or Options()
    check_value("--max-nodes", options.max_nodes, Annotated[int, Ge(4)])
    cells, stem, about = plan(spec, overrides, options, Options())
    drawn = [_panel(spec, title, cell, options) for title, cell in cells.items()]
    described = [panel for _, panel in drawn]
    name = "attention" if options.weights == "attention" else "weight"
    figure = draw_panels([panel for panel, _ in drawn], name, smoke=about["scale"] == "smoke")
    about |= {"weights": options.weights, "perplexity": options.perplexity, "panels": described}
    numbers = pd.DataFrame(
        {"panel": of["title"], "weight": kind}
        | {name: _text(found[key]) for key, name in STATISTICS.items()}
        for of in described
        for kind, found in of["statistics"].items()
    )
    return BuiltFigure(figure, stem, about, numbers)


def _panel(
    spec: FigureSpec, title: str, cell: FigureCell, options: Options
) -> tuple[Panel, dict[str, Any]]:
    """A panel, and its description."""
    seed = cell.cfg.seed
    trained, datamodule, about = train_cell(cell, title)
    graph = datamodule.view("test")
    seen = observe(trained.model, graph.x, graph.edge_index, layer=options.layer)
    label = graph.y.numpy()
    statistics = {
        kind: edge_statistics(
            getattr(seen, kind).numpy(), seen.src.numpy(), seen.dst.numpy(), label
        )
        for kind in ("carried", "attention")
    }
    nodes = np.arange(len(label))
    if len(nodes) > options.max_nodes:
        generator = np.random.default_rng(seed)
        nodes = np.sort(generator.choice(len(nodes), options.max_nodes, replace=False))
    ends, weight = _drawn_edges(seen, options.weights, nodes)
    known = {key: of for key, of in statistics[options.weights].items() if of is not None}
    try:
        note = NOTES[spec.note].format(**known)
    except KeyError:
        note = ""
    position = tsne(seen.z.numpy()[nodes], seed=seed, perplexity=options.perplexity)
    return Panel(title, note, position, label[nodes], ends, weight), about | {
        "epochs": trained.epochs,
        "val_accuracy": trained.val_accuracy,
        "layer": seen.layer,
        "nodes": len(nodes),
        "edges": len(ends),
        "statistics": statistics,
    }


def _drawn_edges(
    seen: Observation, kind: Weights, nodes: Int[ndarray, " k"]
) -> tuple[Int[ndarray, "e 2"], Float[ndarray, " e"]]:
    """Each undirected edge between drawn nodes once, with the mean weight of its directions."""
    ends = np.stack([pd.Index(nodes).get_indexer(of.numpy()) for of in (seen.src, seen.dst)])
    edges = pd.DataFrame({"a": ends.min(0), "b": ends.max(0), "weight": getattr(seen, kind)})
    drawn = edges[edges["a"] >= 0].astype({"weight": float}).groupby(["a", "b"])["weight"].mean()
    if drawn.empty:
        raise ConfigError("--max-nodes: no edge joins two of the nodes drawn; draw more of them")
    return drawn.index.to_frame().to_numpy(), drawn.to_numpy()


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
