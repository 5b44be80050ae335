"""Figures of trained models: training or loading, observation, layout."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray

from robust_diffusion.checks import check_whole
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.figures.draw import Panel, draw_panels
from robust_diffusion.paper.figures.observe import (
    LAST_HIDDEN,
    Observation,
    edge_statistics,
    observe,
    tsne,
)
from robust_diffusion.paper.figures.spec import (
    BuiltFigure,
    FigureCell,
    FigureSpec,
    plan,
    train_cell,
)

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
    check_whole("--max-nodes", options.max_nodes, at_least=4)
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
