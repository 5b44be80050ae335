"""The paper's figures: their panels, and the trained models behind them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from robust_diffusion.cells.overrides import composed
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.figures.looks import look_of
from robust_diffusion.records.code import code_hash
from robust_diffusion.records.identity import cell_id
from robust_diffusion.records.provenance import revision, versions
from robust_diffusion.results.cells import CLEAN, settings_of
from robust_diffusion.robustness.load import set_up_process, train_composed
from robust_diffusion.robustness.threat import TrainedModel

Weights = Literal["carried", "attention"]
"""Weight of a drawn edge: attention A(Z), or the weight with which the flow carries features.

Attention is named in the paper's captions and can be compared between flows: the weights
that arrive at a node sum to 1 in each. The rows of A * B do not, they sum to about 1 / degree.
"""

Note = Literal["classes", "evenness"]

IN_NAME = frozenset(["dataset", "fidelity", "seed", "scale"])
"""Options in the names of a figure's files."""

DATASET = "dataset=cora"
"""The paper's graph, unless the user names another."""

SAME_SCALE = (
    "The darker the edge, the larger its weight, on one scale for all panels; an edge is drawn "
    "once, with the mean weight of its two directions."
)


@dataclass(frozen=True)
class FigureSpec:
    """One figure."""

    name: str  # on the command line
    label: str  # in the paper's source
    caption: str
    panels: tuple[tuple[str, str], ...]  # title and override of each, from left to right
    note: Note = "classes"  # statistic below each panel


def _flow(name: str) -> tuple[str, str]:
    return look_of(name).label, f"flow={name}"


SPECS = {
    "flows": FigureSpec(
        name="flows",
        label="tsne_flows",
        caption="t-SNE of the last hidden representation after diffusion, coloured by class. "
        f"{SAME_SCALE}",
        panels=tuple(map(_flow, ("heat", "mean_curvature", "beltrami"))),
    ),
    "lipschitz": FigureSpec(
        name="lipschitz",
        label="tsne_q2",
        caption="t-SNE of the last hidden representation after diffusion, coloured by class, "
        f"without and with spectral normalisation. {SAME_SCALE}",
        panels=(
            ("without spectral normalisation", "flow.spectral_norm=false"),
            ("with spectral normalisation", "flow.spectral_norm=true"),
        ),
        note="evenness",
    ),
    "stability": FigureSpec(
        name="stability",
        label="lem:lyap_stable",
        caption="State of a trained layer far beyond its integration period, relative to time 0.",
        panels=tuple(map(_flow, ("heat", "grand", "mean_curvature", "beltrami", "p_laplacian"))),
    ),
}


@dataclass(frozen=True)
class FigureCell:
    """Composed configuration; the same, resolved, without paths and logger; each group's option."""

    cfg: DictConfig
    config: dict[str, Any]
    choices: dict[str, Any]

    @property
    def cell(self) -> str:
        """The id under which a run of the same options records its result."""
        return cell_id(self.config)


def compose_cell(overrides: Sequence[str]) -> FigureCell:
    """Compose the configuration of one cell from the overrides of a run."""
    cfg, choices = composed([*overrides, "logger=none"])
    config: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True)  # type: ignore[assignment]
    del config["paths"], config["logger"]
    return FigureCell(cfg, config, choices)


def train_cell(
    cell: FigureCell, title: str
) -> tuple[TrainedModel, GraphDataModule, dict[str, Any]]:
    """The victim of a cell, trained as a run's or from the store, its graph, and both described.

    Args:
        cell: Of `compose_cell`.
        title: Of its panel.
    """
    cfg = cell.cfg
    set_up_process(cfg.threads, cfg.backend)
    datamodule = instantiate(cfg.data)
    datamodule.setup()
    trained = train_composed(cfg, datamodule, description=f"{cfg.dataset.name} {title}")
    about = {
        "title": title,
        "cell": cell.cell,
        "config": cell.config,
        "choices": {key: value for key, value in cell.choices.items() if "/" not in key},
        "model_file": trained.path.name,
        "state": trained.state,
    }
    return trained, datamodule, about


def panel_cells(figure: FigureSpec, given: Sequence[str]) -> dict[str, FigureCell]:
    """The cell of each panel, by its title, from the overrides that the user gave.

    `flow=a,b,c` replaces the panels of a figure that shows one per flow. An option that differs
    between the panels is refused.
    """
    for override in given:
        if "=" not in override:
            raise ConfigError(f"{override}: cannot be read; write key=value")
    panels, rest = figure.panels, list(given)
    if panels[0][1].startswith("flow="):
        rest = [override for override in given if not override.startswith("flow=")]
        flows = [override for override in given if override.startswith("flow=")]
        if flows:
            panels = tuple(map(_flow, flows[-1].removeprefix("flow=").split(",")))
    keys = {_key(override) for override in rest}
    for _, own in panels:
        if _key(own) in keys:
            raise ConfigError(f"{_key(own)}: is what figure {figure.name} compares; drop it")
    default = () if _key(DATASET) in keys else (DATASET,)
    # All composed first, so that a mistyped option of the last panel costs no training.
    return {title: compose_cell((*default, own, *rest)) for title, own in panels}


def _key(override: str) -> str:
    return override.split("=", 1)[0].lstrip("+~")


def describe(figure: FigureSpec, cells: Mapping[str, FigureCell]) -> dict[str, Any]:
    """The description of a figure, as far as it does not depend on what was measured."""
    first = next(iter(cells.values()))
    return {
        "figure": figure.name,
        "label": figure.label,
        "caption": figure.caption,
        "dataset": first.cfg.dataset.name,
        "fidelity": first.choices["fidelity"],
        "seed": first.cfg.seed,
        "scale": first.choices.get("scale", "full"),
        "code": code_hash(),
        "revision": revision(),
        "versions": versions(),
    }


def stem_of(figure: FigureSpec, overrides: Sequence[str], chosen: object, defaults: object) -> str:
    """Name of a figure's files, with a hash where anything but what it names was chosen.

    Args:
        figure: The figure.
        overrides: Those of the user.
        chosen: Options of drawing.
        defaults: The same by default.
    """
    cells = panel_cells(figure, overrides)
    about = describe(figure, cells)
    stem = "{figure}-{dataset}-{fidelity}-seed{seed}".format(**about)
    stem += "-smoke" if about["scale"] == "smoke" else ""
    named = [given for given in overrides if given.split("=")[0] in IN_NAME]
    identity = _identity(cells, chosen)
    # Else a figure of other panels or options would take its place.
    is_other = identity != _identity(panel_cells(figure, named), defaults)
    return f"{stem}-{sha256(identity.encode()).hexdigest()[:8]}" if is_other else stem


def _identity(cells: Mapping[str, FigureCell], options: object) -> str:
    """Settings of the panels and of drawing."""
    return repr(([settings_of({"config": c.config}, CLEAN) for c in cells.values()], options))
