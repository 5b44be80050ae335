"""From a figure's name to its picture: train or take the models, look at them, lay them out."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from numpy import ndarray

from robust_diffusion.checks import check_whole
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.code import code_hash
from robust_diffusion.evaluation.provenance import revision, versions
from robust_diffusion.paper.cells import CLEAN, settings_of
from robust_diffusion.paper.figures.draw import Panel, draw_panels
from robust_diffusion.paper.figures.embedding import tsne
from robust_diffusion.paper.figures.observe import LAST_HIDDEN, Observation, observe
from robust_diffusion.paper.figures.spec import FigureSpec, Note, Weights, panel_overrides
from robust_diffusion.paper.figures.statistics import EdgeStatistics, edge_statistics
from robust_diffusion.paper.figures.victims import FigureCell, compose_cell, train_cell

IN_NAME = frozenset(["dataset", "fidelity", "seed", "scale"])
"""Options that the names of a figure's files tell."""


@dataclass(frozen=True)
class Options:
    """How a figure is drawn.

    Args:
        layer: Which layer is looked at, as Python counts; see `observe.LAST_HIDDEN`.
        perplexity: Of t-SNE, above 0.
        max_nodes: Of a larger graph so many nodes are drawn, chosen at random; at least 4.
        weights: What edges are drawn by.
    """

    layer: int = LAST_HIDDEN
    perplexity: float = 30.0
    max_nodes: int = 3000
    weights: Weights = "attention"

    def __post_init__(self) -> None:
        """Check the range."""
        check_whole("--max-nodes", self.max_nodes, at_least=4)


@dataclass(frozen=True)
class BuiltFigure:
    """A figure, and what shaped it.

    Args:
        figure: The picture.
        stem: Name of its files.
        description: What shaped it and the numbers behind it; JSON can hold it.
    """

    figure: Figure
    stem: str
    description: dict[str, Any]


def build_figure(
    spec: FigureSpec, overrides: Sequence[str], options: Options | None = None
) -> BuiltFigure:
    """Build a figure.

    Args:
        spec: Which.
        overrides: The user's options, as on the command line of a run.
        options: How it is drawn.

    Raises:
        RobustDiffusionError: A value out of range, damaged data, or a loss that is not finite.
        HydraException: An override that does not fit.
    """
    options = options or Options()
    # All composed first, so that a mistyped option of the last panel costs no training.
    cells = _composed(spec, overrides)
    drawn = [_panel(spec, title, cell, options) for title, cell in cells]
    first = cells[0][1]
    smoke = first.choices.get("scale", "full") == "smoke"
    figure = draw_panels(
        [panel for panel, _ in drawn],
        "attention" if options.weights == "attention" else "weight",
        warning="smoke run: says nothing about the paper" if smoke else "",
    )
    name, seed = first.cfg.dataset.name, first.cfg.seed
    fidelity = first.choices["fidelity"]
    description = {
        "figure": spec.name,
        "label": spec.label,
        "caption": spec.caption,
        "dataset": name,
        "fidelity": fidelity,
        "seed": seed,
        "scale": first.choices.get("scale", "full"),
        "weights": options.weights,
        "perplexity": options.perplexity,
        "code": code_hash(),
        "revision": revision(),
        "versions": versions(),
        "panels": [about for _, about in drawn],
    }
    stem = f"{spec.name}-{name}-{fidelity}-seed{seed}{'-smoke' if smoke else ''}"
    usual = [given for given in overrides if given.split("=")[0] in IN_NAME]
    shown, by_default = _identity(cells, options), _identity(_composed(spec, usual), Options())
    # Else a figure of other panels or options would take its place.
    stem += f"-{sha256(shown.encode()).hexdigest()[:8]}" if shown != by_default else ""
    return BuiltFigure(figure, stem, description)


def _composed(spec: FigureSpec, overrides: Sequence[str]) -> list[tuple[str, FigureCell]]:
    return [
        (panel.title, compose_cell(composed))
        for panel, composed in panel_overrides(spec, overrides)
    ]


def _identity(cells: Sequence[tuple[str, FigureCell]], options: Options) -> str:
    """What is drawn, and how, as far as the name of the files does not say it."""
    settings = [settings_of({"config": cell.config}, CLEAN) for _, cell in cells]
    return repr((settings, options))


def _panel(
    spec: FigureSpec, title: str, cell: FigureCell, options: Options
) -> tuple[Panel, dict[str, Any]]:
    name, seed = cell.cfg.dataset.name, cell.cfg.seed
    trained, datamodule = train_cell(cell, f"{name} {title}")
    graph = datamodule.view("test")
    assert graph.x is not None
    assert graph.edge_index is not None
    seen = observe(trained.model, graph.x, graph.edge_index, layer=options.layer)
    label = graph.y.numpy()
    statistics = {
        kind: edge_statistics(
            getattr(seen, kind).numpy(), seen.src.numpy(), seen.dst.numpy(), label
        )
        for kind in ("carried", "attention")
    }
    nodes = _drawn_nodes(len(label), options.max_nodes, seed)
    ends, weight = _drawn_edges(seen, options.weights, nodes)
    panel = Panel(
        title=title,
        note=_note(spec.note, statistics[options.weights]),
        position=tsne(seen.z.numpy()[nodes], seed=seed, perplexity=options.perplexity),
        label=label[nodes],
        ends=ends,
        weight=weight,
    )
    about = {
        "title": title,
        "cell": cell.cell,
        "config": cell.config,
        "choices": {key: value for key, value in cell.choices.items() if "/" not in key},
        "model_file": trained.path.name,
        "state": trained.state,
        "epochs": trained.epochs,
        "val_accuracy": trained.val_accuracy,
        "layer": seen.layer,
        "nodes": len(nodes),
        "edges": len(ends),
        "statistics": {kind: asdict(found) for kind, found in statistics.items()},
    }
    return panel, about


def _drawn_nodes(num_nodes: int, most: int, seed: int) -> Int[ndarray, " k"]:
    if num_nodes <= most:
        return np.arange(num_nodes)
    return np.sort(np.random.default_rng(seed).choice(num_nodes, most, replace=False))


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


def _note(kind: Note, statistics: EdgeStatistics) -> str:
    if kind == "evenness":
        value = statistics.evenness
        return "" if value is None else f"evenness at a node {value:.3f}"
    inter, intra = statistics.inter_mean, statistics.intra_mean
    if inter is None or intra is None:
        return ""
    return f"mean {inter:.3f} between classes, {intra:.3f} within"
