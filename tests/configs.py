"""Configurations of runs, each composed once."""

from functools import cache

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from robust_diffusion.config import CONFIG_DIR


@cache
def composed(*overrides: str) -> DictConfig:
    """The whole configuration, Hydra's own part included; nobody may change it."""
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIG_DIR)):
        return hydra.compose("config", overrides=list(overrides), return_hydra_config=True)
