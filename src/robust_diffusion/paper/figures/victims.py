"""Trained models behind the figures, composed and trained exactly as a run's victims."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from robust_diffusion.cells.overrides import composed
from robust_diffusion.data import GraphDataModule
from robust_diffusion.records.identity import cell_id
from robust_diffusion.robustness.load import set_up_process, train_composed
from robust_diffusion.robustness.trained import TrainedModel


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


def train_cell(cell: FigureCell, description: str) -> tuple[TrainedModel, GraphDataModule]:
    """The victim of a cell, from the store if it was trained before, and its graph."""
    cfg = cell.cfg
    set_up_process(cfg.threads, cfg.backend)
    datamodule = instantiate(cfg.data)
    datamodule.setup()
    return train_composed(cfg, datamodule, description=description), datamodule
