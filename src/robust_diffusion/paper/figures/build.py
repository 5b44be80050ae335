"""The paper's figures of trained models: t-SNE of layers."""

from collections.abc import Sequence
from hashlib import sha256
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from annotated_types import Ge
from hydra.utils import instantiate
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from numpy import ndarray
from omegaconf import DictConfig, OmegaConf
from scipy.special import entr
from scipy.stats import mannwhitneyu
from sklearn.manifold import TSNE
from torch import Tensor, nn

from robust_diffusion.checks import Positive, check_value
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.load import set_up_process, train_composed
from robust_diffusion.evaluation.threat import TrainedModel
from robust_diffusion.experiment.overrides import composed
from robust_diffusion.models.graph_pde import PDELayer
from robust_diffusion.paper.figures.draw import Panel, draw_panels, look_of
from robust_diffusion.records.content import code_hash
from robust_diffusion.records.identity import run_id
from robust_diffusion.records.provenance import revision, versions

IN_NAME = ("dataset", "fidelity", "seed", "scale")
"""Options in the names of a figure's files."""

_TSNE = (
    "t-SNE of the last hidden representation after diffusion, coloured by class{}. The darker the "
    "edge, the larger its weight, on one scale for all panels; an edge is drawn once, with the "
    "mean weight of its two directions."
)


class FigureSpec(NamedTuple):
    """One figure."""

    label: str  # in the paper's source
    caption: str
    panels: dict[str, str]  # title -> override, from left to right
    note: str = ""  # below each panel, of its statistics


class BuiltFigure(NamedTuple):
    """A figure, the stem of its files, its options and numbers for JSON, and those to print."""

    figure: Figure
    stem: str
    description: dict[str, Any]
    numbers: pd.DataFrame


class Options(NamedTuple):
    """Options of a figure.

    The paper's captions name the attention A(Z), which is comparable between flows: the weights
    that arrive at a node sum to 1, while the carried weights A * B sum to about 1 / degree.
    """

    layer: int | None = None  # negative from the end; `None` for -2
    perplexity: float = 30.0  # of t-SNE, above 0
    max_nodes: int = 3000  # at least 4; drawn at random from a larger graph
    weights: Literal["carried", "attention"] = "attention"


class FigureRun(NamedTuple):
    """Composed configuration, and each group's option."""

    cfg: DictConfig
    choices: dict[str, Any]


Measured = tuple[dict[str, Any], Panel, list[dict[str, Any]]]
"""A panel's description for JSON, the object to draw, and rows of numbers to print."""


def _flows(*names: str) -> dict[str, str]:
    return {look_of(name).label: f"flow={name}" for name in names}


SPECS = {
    "flows": FigureSpec(
        "tsne_flows",
        _TSNE.format(""),
        _flows("heat", "mean_curvature", "beltrami"),
        "mean {inter_mean:.3f} between classes, {intra_mean:.3f} within",
    ),
    "lipschitz": FigureSpec(
        "tsne_q2",
        _TSNE.format(", without and with spectral normalisation"),
        {
            f"{which} spectral normalisation": f"flow.lipschitz={on}"
            for which, on in (("without", "false"), ("with", "true"))
        },
        "evenness at a node {evenness:.3f}",
    ),
}


def build_figure(
    name: str, overrides: Sequence[str], options: Options | None = None
) -> BuiltFigure:
    """Train the model of each panel under the overrides of a run, and draw them.

    The stem ends in a hash if an option, or an override that the stem does not name, differs from
    its default.
    """
    options = options or Options()
    check_value("--max-nodes", options.max_nodes, Annotated[int, Ge(4)])
    runs, spec = panel_runs(name, overrides), SPECS[name]
    cfg, choices = next(iter(runs.values()))
    about: dict[str, Any] = {
        "figure": name,
        "label": spec.label,
        "caption": spec.caption,
        "dataset": cfg.dataset.name,
        "fidelity": choices["fidelity"],
        "seed": cfg.seed,
        "scale": choices.get("scale", "full"),
        "code": code_hash(),
        "revision": revision(),
        "versions": versions(),
    }
    smoke = about["scale"] == "smoke"
    stem = "{figure}-{dataset}-{fidelity}-seed{seed}".format(**about) + "-smoke" * smoke
    named = panel_runs(name, [arg for arg in overrides if arg.split("=")[0] in IN_NAME])
    identity, of_name = (
        repr(([run_id(_plain(run.cfg)) for run in by_title.values()], drawn))
        for by_title, drawn in ((runs, options), (named, Options()))
    )
    if identity != of_name:  # otherwise it would overwrite another figure
        stem += f"-{sha256(identity.encode()).hexdigest()[:8]}"
    measured = [_panel(title, run, options, spec.note) for title, run in runs.items()]
    panels, drawings, rows = (list(column) for column in zip(*measured, strict=True))
    weight = "attention" if options.weights == "attention" else "weight"
    figure = draw_panels(drawings, weight, smoke=smoke)
    about |= {"weights": options.weights, "perplexity": options.perplexity}
    numbers = pd.DataFrame(chain.from_iterable(rows))
    texts = numbers.map(lambda x: f"{x:.4f}" if isinstance(x, float) else x)
    return BuiltFigure(figure, stem, about | {"panels": panels}, texts.replace("nan", "-"))


def panel_runs(name: str, overrides: Sequence[str]) -> dict[str, FigureRun]:
    """Return the run of each panel, by its title, under the user's overrides.

    `flow=a,b,c` replaces the panels of a figure that shows one per flow. It is an error to override
    an option that differs between the panels.
    """
    panels, rest = SPECS[name].panels, list(overrides)
    if all(arg.startswith("flow=") for arg in panels.values()):
        rest = [override for override in overrides if not override.startswith("flow=")]
        if flows := [override for override in overrides if override not in rest]:
            panels = _flows(*flows[-1].removeprefix("flow=").split(","))
    keys = {override.split("=", 1)[0].lstrip("+~") for override in rest}
    for compared in (arg.partition("=")[0] for arg in panels.values()):
        if compared in keys:
            raise ConfigError(f"{compared}: is what figure {name} compares; drop it")
    # All are composed first, so that a mistyped option of the last panel costs no training.
    default = ("dataset=cora", "logger=none")
    return {title: FigureRun(*composed([*default, arg, *rest])) for title, arg in panels.items()}


def _plain(cfg: DictConfig) -> dict[str, Any]:
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    return {key: part for key, part in config.items() if key not in ("paths", "logger")}


def train(title: str, run: FigureRun) -> tuple[TrainedModel, GraphDataModule, dict[str, Any]]:
    """Return a panel's model, trained as in a run or cached, its graph, and a description."""
    cfg, choices = run
    set_up_process(cfg.threads, cfg.backend)
    datamodule = instantiate(cfg.data)
    datamodule.setup()
    trained = train_composed(cfg, datamodule, description=f"{cfg.dataset.name} {title}")
    about = {
        "title": title,
        "run": run_id(_plain(cfg)),
        "config": _plain(cfg),
        "choices": {key: value for key, value in choices.items() if "/" not in key},
        "model_file": trained.path.name,
        "state": trained.state,
    }
    return trained, datamodule, about


def _panel(title: str, run: FigureRun, options: Options, note: str) -> Measured:
    trained, datamodule, about = train(title, run)
    graph, seed = datamodule.view("test"), run.cfg.seed
    layer, z, edges = observe(trained.model, graph.x, graph.edge_index, layer=options.layer)
    label = graph.y.numpy()
    statistics = {kind: edge_statistics(edges, kind, label) for kind in ("carried", "attention")}
    nodes = np.arange(len(label))
    if len(nodes) > options.max_nodes:
        generator = np.random.default_rng(seed)
        nodes = np.sort(generator.choice(len(nodes), options.max_nodes, replace=False))
    drawn = undirected(edges, nodes)[options.weights]
    known = statistics[options.weights]
    note = "" if None in known.values() else note.format(**known)
    position = tsne(z.numpy()[nodes], seed=seed, perplexity=options.perplexity)
    ends, weight = drawn.index.to_frame().to_numpy(), drawn.to_numpy()
    about |= {
        "epochs": trained.epochs,
        "val_accuracy": trained.val_accuracy,
        "layer": layer,
        "nodes": len(nodes),
        "edges": len(drawn),
        "statistics": statistics,
    }
    rows = [{"panel": title, "weight": kind, **numbers} for kind, numbers in statistics.items()]
    return about, Panel(title, note, position, label[nodes], ends, weight), rows


def observe(
    model: nn.Module,
    x: Float[Tensor, "n f"],
    edge_index: Int[Tensor, "2 e"],
    *,
    layer: int | None = None,
) -> tuple[int, Float[Tensor, "n d"], pd.DataFrame]:
    """Observe one layer of a trained stack of graph neural PDEs, and leave it in eval mode.

    A negative layer counts from the end. The default is the last hidden layer, or the only one: the
    last layer's state is the logits, and the paper's figures show the attention between
    representations.

    Returns:
        The layer, counted from 0; its state at the end of the diffusion, before ReLU and dropout;
        and its edges `src`, `dst` without self-loops, with the weights at that state: `carried`,
        by which the flow carries features, and `attention`, A(Z) before any modulation.
    """
    layers = [module for module in model.modules() if isinstance(module, PDELayer)]
    if not layers:
        raise ConfigError(
            f"model={type(model).__name__}: has no flow to look at; use model=graph_pde or "
            "model=beltrami_guard"
        )
    layer = max(-2, -len(layers)) if layer is None else layer
    if not -len(layers) <= layer < len(layers):
        raise ConfigError(f"--layer {layer}: the model has {len(layers)} layers, counted from 0")
    watched = layers[layer]
    flow, seen = watched.flow, dict[str, Any]()
    with (
        torch.no_grad(),
        # The graph that the flow received, which a guard may have pruned and the flow prepared.
        flow.register_forward_hook(lambda *args: seen.update(args[2]), with_kwargs=True),
        watched.register_forward_hook(lambda _, __, output: seen.update(z=output[0])),
    ):
        model.eval()(x, edge_index)
        if "graph" not in seen:
            raise ConfigError("flow.t_end=0: no diffusion, so no edge has a weight; use above 0")
        z, graph = seen["z"], seen["graph"]
        weights = {"carried": flow.edge_weights(z, graph), "attention": flow.similarity(z, graph)}
    edges = pd.DataFrame({"src": graph.src, "dst": graph.dst, **weights})
    return layer % len(layers), z, edges[edges["src"] != edges["dst"]]


def undirected(edges: pd.DataFrame, nodes: Int[ndarray, " k"]) -> pd.DataFrame:
    """Return each edge between two of the nodes once, with the mean weights of its directions.

    The index holds the positions of its ends among the nodes.
    """
    ends = np.stack([pd.Index(nodes).get_indexer(edges[end]) for end in ("src", "dst")])
    inside, (a, b) = ends.min(0) >= 0, np.sort(ends, axis=0)
    drawn: pd.DataFrame = edges[inside].astype(float).groupby([a[inside], b[inside]]).mean()
    if drawn.empty:
        raise ConfigError("--max-nodes: no edge joins two of the nodes drawn; draw more of them")
    return drawn


def tsne(z: Float[ndarray, "n d"], *, seed: int, perplexity: float = 30.0) -> Float[ndarray, "n 2"]:
    """Return the t-SNE of representations, centred, the larger of its two extents from -1 to 1.

    It starts from the principal components, so that the large-scale layout has a meaning. The
    perplexity is lowered for few nodes; fewer than four are laid out on a circle.

    Reference: van der Maaten and Hinton 2008; Kobak and Berens 2019, arXiv:1902.07023 (start).
    """
    n, perplexity = len(z), check_value("--perplexity", perplexity, Positive)
    if n < 4 or not (z != z[0]).any():
        angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    start = "pca" if min(z.shape) > 1 else "random"
    method = TSNE(perplexity=min(perplexity, (n - 1) / 3), init=start, random_state=seed)
    layout = method.fit_transform(np.asarray(z, np.float64)).astype(np.float64)
    low, high = layout.min(0), layout.max(0)
    half = max((high - low).max() / 2, 1e-12)
    return (layout - (low + high) / 2) / half  # type: ignore[no-any-return]


def edge_statistics(
    edges: pd.DataFrame, kind: str, label: Int[ndarray, " n"]
) -> dict[str, float | None]:
    """Compute statistics of the weights of directed edges inside classes and between them.

    Returns:
        `intra_edges` and `inter_edges`, numbers; `intra_mean` and `inter_mean`, of the weights;
        `inter_share` of all weight, in 0..1; `inter_preference`, the mean of weight / mean weight
        at its node, 1 if unrelated; `inter_above_intra`, a probability, ties half, 0.5 if
        unrelated to classes; `evenness`, entropy at a node / its largest value, 1 if all weigh the
        same. `None` where there are no edges of a kind.
    """
    inter = label[edges["src"]] != label[edges["dst"]]
    weights = edges[kind].astype(np.float64)
    within, between = weights[~inter], weights[inter]
    pairs = len(within) * len(between)
    arriving = weights.groupby(edges["dst"])
    share = weights / arriving.transform("sum")  # NaN at a node to which no weight arrives
    preference = (share * arriving.transform("size")).fillna(1)
    entropy = entr(share).groupby(edges["dst"]).sum(min_count=1)
    numbers = {
        "intra_mean": within.mean(),
        "inter_mean": between.mean(),
        "inter_share": between.sum() / (weights.sum() or np.nan),
        "inter_preference": preference[inter].mean(),
        "inter_above_intra": mannwhitneyu(between, within).statistic / pairs if pairs else None,
        "evenness": (entropy / np.log(arriving.size())).mean(),  # NaN at a node of one edge
    }
    known = {key: None if pd.isna(x) else float(x) for key, x in numbers.items()}
    return {"intra_edges": len(within), "inter_edges": len(between), **known}
