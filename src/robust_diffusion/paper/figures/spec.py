"""The paper's figures: their panels, and the trained models behind them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import pandas as pd
from hydra.utils import instantiate
from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf

from robust_diffusion.cells.overrides import composed
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.figures.draw import look_of
from robust_diffusion.records.code import code_hash
from robust_diffusion.records.identity import cell_id, settings_of
from robust_diffusion.records.provenance import revision, versions
from robust_diffusion.records.records import CLEAN
from robust_diffusion.robustness.load import set_up_process, train_composed
from robust_diffusion.robustness.threat import TrainedModel

IN_NAME = frozenset(["dataset", "fidelity", "seed", "scale"])
"""Options in the names of a figure's files."""

DATASET = "dataset=cora"
"""The paper's graph, unless the user names another."""

OF_TSNE = "t-SNE of the last hidden representation after diffusion, coloured by class"
SAME_SCALE = (
    "The darker the edge, the larger its weight, on one scale for all panels; an edge is drawn "
    "once, with the mean weight of its two directions."
)


class FigureSpec(NamedTuple):
    """One figure."""

    name: str  # on the command line
    label: str  # in the paper's source
    caption: str
    panels: Mapping[str, str]  # title -> override, from left to right
    note: Literal["classes", "evenness"] = "classes"  # statistic below each panel


class BuiltFigure(NamedTuple):
    """A figure, the stem of its files, its options and numbers for JSON, and those to print."""

    figure: Figure
    stem: str
    description: dict[str, Any]
    numbers: pd.DataFrame


def _flows(*names: str) -> dict[str, str]:
    return {look_of(name).label: f"flow={name}" for name in names}


_SPECS = (
    FigureSpec(
        name="flows",
        label="tsne_flows",
        caption=f"{OF_TSNE}. {SAME_SCALE}",
        panels=_flows("heat", "mean_curvature", "beltrami"),
    ),
    FigureSpec(
        name="lipschitz",
        label="tsne_q2",
        caption=f"{OF_TSNE}, without and with spectral normalisation. {SAME_SCALE}",
        panels={
            "without spectral normalisation": "flow.spectral_norm=false",
            "with spectral normalisation": "flow.spectral_norm=true",
        },
        note="evenness",
    ),
    FigureSpec(
        name="stability",
        label="lem:lyap_stable",
        caption="State of a trained layer far beyond its integration period, relative to time 0.",
        panels=_flows("heat", "grand", "mean_curvature", "beltrami", "p_laplacian"),
    ),
)
SPECS = {spec.name: spec for spec in _SPECS}


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
    """The victim of a cell, trained as a run's or from the store, its graph, and both described."""
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
    if all(own.startswith("flow=") for own in panels.values()):
        rest = [override for override in given if not override.startswith("flow=")]
        if flows := [override for override in given if override not in rest]:
            panels = _flows(*flows[-1].removeprefix("flow=").split(","))
    keys = {override.split("=", 1)[0].lstrip("+~") for override in rest}
    for compared in (own.partition("=")[0] for own in panels.values()):
        if compared in keys:
            raise ConfigError(f"{compared}: is what figure {figure.name} compares; drop it")
    default = () if "dataset" in keys else (DATASET,)
    # All composed first, so that a mistyped option of the last panel costs no training.
    return {title: compose_cell((*default, own, *rest)) for title, own in panels.items()}


def plan(
    figure: FigureSpec, given: Sequence[str], chosen: object, defaults: object
) -> tuple[dict[str, FigureCell], str, dict[str, Any]]:
    """Cells of a figure, the stem of its files, and its description before anything is measured.

    The stem ends in a hash where the user chose anything but what it names: an override of those
    `given`, or options of drawing other than the defaults.
    """
    cells = panel_cells(figure, given)
    first = next(iter(cells.values()))
    about = {
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
    stem = "{figure}-{dataset}-{fidelity}-seed{seed}".format(**about)
    stem += "-smoke" * (about["scale"] == "smoke")
    named = panel_cells(figure, [own for own in given if own.split("=")[0] in IN_NAME])
    identity, of_name = (
        repr(([settings_of({"config": cell.config}, CLEAN) for cell in of.values()], options))
        for of, options in ((cells, chosen), (named, defaults))
    )
    # Else a figure of other panels or options would take its place.
    digest = sha256(identity.encode()).hexdigest()[:8]
    return cells, stem if identity == of_name else f"{stem}-{digest}", about
