"""Figures of trained models: training or loading, observation, layout."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from numpy import ndarray

from robust_diffusion.checks import check_whole
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.figures.draw import Panel, draw_panels
from robust_diffusion.paper.figures.observe import (
    LAST_HIDDEN,
    Observation,
    Statistics,
    edge_statistics,
    observe,
    tsne,
)
from robust_diffusion.paper.figures.spec import (
    FigureCell,
    FigureSpec,
    Note,
    Weights,
    describe,
    panel_cells,
    stem_of,
    train_cell,
)


@dataclass(frozen=True)
class Options:
    """Options of drawing."""

    layer: int = LAST_HIDDEN  # negative from the end
    perplexity: float = 30.0  # of t-SNE, above 0
    max_nodes: int = 3000  # at least 4; drawn at random from a larger graph
    weights: Weights = "attention"

    def __post_init__(self) -> None:
        """Check the range."""
        check_whole("--max-nodes", self.max_nodes, at_least=4)


@dataclass(frozen=True)
class BuiltFigure:
    """A figure, the stem of its files, and its options and numbers as JSON can hold them."""

    figure: Figure
    stem: str
    description: dict[str, Any]


def build_figure(
    spec: FigureSpec, overrides: Sequence[str], options: Options | None = None
) -> BuiltFigure:
    """Build a figure under the overrides of a run, as on its command line."""
    options = options or Options()
    cells = panel_cells(spec, overrides)
    drawn = [_panel(spec, title, cell, options) for title, cell in cells.items()]
    about = describe(spec, cells)
    figure = draw_panels(
        [panel for panel, _ in drawn],
        "attention" if options.weights == "attention" else "weight",
        smoke=about["scale"] == "smoke",
    )
    about |= {
        "weights": options.weights,
        "perplexity": options.perplexity,
        "panels": [panel for _, panel in drawn],
    }
    return BuiltFigure(figure, stem_of(spec, overrides, options, Options()), about)


def _panel(
    spec: FigureSpec, title: str, cell: FigureCell, options: Options
) -> tuple[Panel, dict[str, Any]]:
    seed = cell.cfg.seed
    trained, datamodule, about = train_cell(cell, title)
    graph = datamodule.view("test")
    assert graph.x is not None
    assert graph.edge_index is not None
    seen = observe(trained.model, graph.x, graph.edge_index, layer=options.layer)
    label = graph.y.numpy()
    src, dst = seen.src.numpy(), seen.dst.numpy()
    statistics = {
        "carried": edge_statistics(seen.carried.numpy(), src, dst, label),
        "attention": edge_statistics(seen.attention.numpy(), src, dst, label),
    }
    nodes = np.arange(len(label))
    if len(nodes) > options.max_nodes:
        generator = np.random.default_rng(seed)
        nodes = np.sort(generator.choice(len(nodes), options.max_nodes, replace=False))
    ends, weight = _drawn_edges(seen, options.weights, nodes)
    panel = Panel(
        title=title,
        note=_note(spec.note, statistics[options.weights]),
        position=tsne(seen.z.numpy()[nodes], seed=seed, perplexity=options.perplexity),
        label=label[nodes],
        ends=ends,
        weight=weight,
    )
    about |= {
        "epochs": trained.epochs,
        "val_accuracy": trained.val_accuracy,
        "layer": seen.layer,
        "nodes": len(nodes),
        "edges": len(ends),
        "statistics": statistics,
    }
    return panel, about


def _drawn_edges(
    seen: Observation, kind: Weights, nodes: Int[ndarray, " k"]
) -> tuple[Int[ndarray, "e 2"], Float[ndarray, " e"]]:
    """Each undirected edge between drawn nodes once, with the mean weight of its directions."""
    src, dst = seen.src.numpy(), seen.dst.numpy()
    weight = getattr(seen, kind).numpy().astype(np.float64)
    number = np.full(len(seen.z), -1)
    number[nodes] = np.arange(len(nodes))
    a, b = number[src], number[dst]
    inside = (a >= 0) & (b >= 0)
    if not inside.any():
        raise ConfigError("--max-nodes: no edge joins two of the nodes drawn; draw more of them")
    a, b, weight = a[inside], b[inside], weight[inside]
    key = np.minimum(a, b) * len(nodes) + np.maximum(a, b)
    keys, place, count = np.unique(key, return_inverse=True, return_counts=True)
    ends = np.stack(np.divmod(keys, len(nodes)), axis=1)
    return ends, np.bincount(place, weights=weight) / count


def _note(kind: Note, statistics: Statistics) -> str:
    """Text below a panel."""
    evenness, inter, intra = (statistics[k] for k in ("evenness", "inter_mean", "intra_mean"))
    if kind == "evenness":
        return "" if evenness is None else f"evenness at a node {evenness:.3f}"
    if inter is None or intra is None:
        return ""
    return f"mean {inter:.3f} between classes, {intra:.3f} within"
