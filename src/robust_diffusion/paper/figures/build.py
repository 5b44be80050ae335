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
from robust_diffusion.paper.figures.draw import Panel, draw_panels
from robust_diffusion.paper.figures.embedding import tsne
from robust_diffusion.paper.figures.observe import LAST_HIDDEN, Observation, observe
from robust_diffusion.paper.figures.spec import FigureSpec, Note, Weights, panel_overrides
from robust_diffusion.paper.figures.statistics import EdgeStatistics, edge_statistics
from robust_diffusion.paper.figures.victims import FigureCell, compose_cell, train_cell
from robust_diffusion.records.code import code_hash
from robust_diffusion.records.provenance import revision, versions
from robust_diffusion.results.cells import CLEAN, settings_of

IN_NAME = frozenset(["dataset", "fidelity", "seed", "scale"])
"""Options in the names of a figure's files."""


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
    # All composed first, so that a mistyped option of the last panel costs no training.
    cells = composed(spec, overrides)
    drawn = [_panel(spec, title, cell, options) for title, cell in cells.items()]
    about = about_run(spec, cells)
    figure = draw_panels(
        [panel for panel, _ in drawn],
        "attention" if options.weights == "attention" else "weight",
        warning=warning_of(about),
    )
    description = {
        **about,
        "weights": options.weights,
        "perplexity": options.perplexity,
        "panels": [panel for _, panel in drawn],
    }
    return BuiltFigure(figure, stem_of(spec, overrides, about, (options, Options())), description)


def about_run(spec: FigureSpec, cells: Mapping[str, FigureCell]) -> dict[str, Any]:
    """The description of a figure, as far as it does not depend on what was measured."""
    first = next(iter(cells.values()))
    return {
        "figure": spec.name,
        "label": spec.label,
        "caption": spec.caption,
        "dataset": first.cfg.dataset.name,
        "fidelity": first.choices["fidelity"],
        "seed": first.cfg.seed,
        "scale": first.choices.get("scale", "full"),
        "code": code_hash(),
        "revision": revision(),
        "versions": versions(),
    }


def warning_of(about: Mapping[str, Any]) -> str:
    """Text in the corner of a smoke run's figure; empty for any other's."""
    return "smoke run: says nothing about the paper" if about["scale"] == "smoke" else ""


def stem_of(
    spec: FigureSpec,
    overrides: Sequence[str],
    about: Mapping[str, Any],
    options: tuple[object, object],
) -> str:
    """Name of a figure's files, with a hash where anything but what it names was chosen.

    Args:
        spec: The figure.
        overrides: Those of the user.
        about: Of `about_run`.
        options: Of drawing, those chosen and the defaults.
    """
    stem = "{figure}-{dataset}-{fidelity}-seed{seed}".format(**about)
    stem += "-smoke" if about["scale"] == "smoke" else ""
    named = [given for given in overrides if given.split("=")[0] in IN_NAME]
    chosen, defaults = options
    identity = _identity(composed(spec, overrides), chosen)
    # Else a figure of other panels or options would take its place.
    is_other = identity != _identity(composed(spec, named), defaults)
    return f"{stem}-{sha256(identity.encode()).hexdigest()[:8]}" if is_other else stem


def composed(spec: FigureSpec, overrides: Sequence[str]) -> dict[str, FigureCell]:
    """The cell of each panel, by its title."""
    return {title: compose_cell(own) for title, own in panel_overrides(spec, overrides).items()}


def _identity(cells: Mapping[str, FigureCell], options: object) -> str:
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
