"""Figures of trained models: training or loading, observation, layout."""

from collections.abc import Mapping, Sequence
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
from robust_diffusion.paper.figures.draw import Panel, draw_panels
from robust_diffusion.paper.figures.embedding import tsne
from robust_diffusion.paper.figures.observe import LAST_HIDDEN, Observation, observe
from robust_diffusion.paper.figures.spec import FigureSpec, Note, Weights, panel_overrides
from robust_diffusion.paper.figures.statistics import EdgeStatistics, edge_statistics
from robust_diffusion.paper.figures.victims import FigureCell, compose_cell, train_cell
from robust_diffusion.results.cells import CLEAN, settings_of

IN_NAME = frozenset(["dataset", "fidelity", "seed", "scale"])
"""Options in the names of a figure's files."""


@dataclass(frozen=True)
class Options:
    """Options of drawing.

    Args:
        layer: Index of the layer, negative from the end; see `observe.LAST_HIDDEN`.
        perplexity: Of t-SNE, above 0.
        max_nodes: Of a larger graph so many nodes are drawn, chosen at random; at least 4.
        weights: Weights by which edges are drawn.
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
    """A figure, the stem of its files, and its options and numbers as JSON can hold them."""

    figure: Figure
    stem: str
    description: dict[str, Any]


def build_figure(
    spec: FigureSpec, overrides: Sequence[str], options: Options | None = None
) -> BuiltFigure:
    """Build a figure.

    Args:
        spec: The figure.
        overrides: The user's overrides, as on the command line of a run.
        options: Options of drawing.

    Raises:
        RobustDiffusionError: A value out of range, damaged data, or a loss that is not finite.
        HydraException: An override that does not fit.
    """
    options = options or Options()
    # All composed first, so that a mistyped option of the last panel costs no training.
    cells = _composed(spec, overrides)
    drawn = [_panel(spec, title, cell, options) for title, cell in cells.items()]
    first = next(iter(cells.values()))
    name, seed = first.cfg.dataset.name, first.cfg.seed
    fidelity, scale = first.choices["fidelity"], first.choices.get("scale", "full")
    figure = draw_panels(
        [panel for panel, _ in drawn],
        "attention" if options.weights == "attention" else "weight",
        warning="smoke run: says nothing about the paper" if scale == "smoke" else "",
    )
    description = {
        "figure": spec.name,
        "label": spec.label,
        "caption": spec.caption,
        "dataset": name,
        "fidelity": fidelity,
        "seed": seed,
        "scale": scale,
        "weights": options.weights,
        "perplexity": options.perplexity,
        "code": code_hash(),
        "revision": revision(),
        "versions": versions(),
        "panels": [about for _, about in drawn],
    }
    stem = f"{spec.name}-{name}-{fidelity}-seed{seed}{'-smoke' if scale == 'smoke' else ''}"
    named = [given for given in overrides if given.split("=")[0] in IN_NAME]
    identity, by_default = _identity(cells, options), _identity(_composed(spec, named), Options())
    # Else a figure of other panels or options would take its place.
    stem += f"-{sha256(identity.encode()).hexdigest()[:8]}" if identity != by_default else ""
    return BuiltFigure(figure, stem, description)


def _composed(spec: FigureSpec, overrides: Sequence[str]) -> dict[str, FigureCell]:
    return {title: compose_cell(own) for title, own in panel_overrides(spec, overrides).items()}


def _identity(cells: Mapping[str, FigureCell], options: Options) -> str:
    """Settings of the panels and of drawing."""
    return repr(([settings_of({"config": c.config}, CLEAN) for c in cells.values()], options))


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
    src, dst = seen.src.numpy(), seen.dst.numpy()
    statistics = {
        "carried": edge_statistics(seen.carried.numpy(), src, dst, label),
        "attention": edge_statistics(seen.attention.numpy(), src, dst, label),
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
