"""Presets of `hydra/launcher`."""

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.utils import get_class
from omegaconf import DictConfig

from robust_diffusion.config import CONFIG_DIR

Cli = Callable[..., Any]
PLUGINS = {
    "cores": ("hydra_plugins.hydra_joblib_launcher", "launchers"),
    "local": ("hydra_plugins.hydra_submitit_launcher", "slurm"),
    "slurm": ("hydra_plugins.hydra_submitit_launcher", "slurm"),
}
"""Per preset the plugin that it sets up, and the extra that brings it."""
PRESETS = sorted(path.stem for path in (CONFIG_DIR / "hydra" / "launcher").glob("*.yaml"))


def launcher(*overrides: str) -> DictConfig:
    GlobalHydra.instance().clear()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONFIG_DIR)):
        cfg = compose("config", overrides=list(overrides), return_hydra_config=True)
    return cfg.hydra.launcher


def installed(preset: str) -> bool:
    return importlib.util.find_spec(PLUGINS[preset][0]) is not None


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_says_what_it_needs(preset: str) -> None:
    text = (CONFIG_DIR / "hydra" / "launcher" / f"{preset}.yaml").read_text()
    comment = text.partition("defaults:")[0]
    assert f"Needs the extra `{PLUGINS[preset][1]}`" in " ".join(comment.split("\n# "))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_its_plugins_launcher(preset: str) -> None:
    if not installed(preset):
        pytest.skip(f"the extra `{PLUGINS[preset][1]}` is missing")
    # A key that the plugin does not have would not compose.
    cfg = launcher(f"hydra/launcher={preset}", "threads=3")
    get_class(cfg._target_)
    expected = {"cores": {"n_jobs": -1}, "slurm": {"cpus_per_task": 3, "mem_gb": 8}, "local": {}}
    assert expected[preset].items() <= cfg.items()


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_without_its_plugin_names_the_extra(cli: Cli, preset: str) -> None:
    if installed(preset):
        pytest.skip("its plugin is installed")
    outcome = cli("-m", "seed=0,1", f"hydra/launcher={preset}")
    assert outcome.status == 1
    assert outcome.error.endswith(f"pip install 'robust-diffusion[{PLUGINS[preset][1]}]'")
