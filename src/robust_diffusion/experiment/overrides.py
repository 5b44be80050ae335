"""Checks of a composed configuration: valid values, and no key or override that nothing reads."""

import logging
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from robust_diffusion.checks import (
    Backend,
    Seed,
    check_argument,
    check_value,
    imported,
    parameters_of,
)
from robust_diffusion.config import CONFIG_DIR, known_keys, nearest
from robust_diffusion.errors import ConfigError
from robust_diffusion.experiment.arguments import check_arguments
from robust_diffusion.experiment.unread import REFERENCE, unread_settings
from robust_diffusion.system.boundary import describe
from robust_diffusion.system.interrupts import Seconds

log = logging.getLogger(__name__)

_PARTS = ("budget", "data", "model", "threat", "training")
"""Top-level keys that hold one object; `MEMBERS` hold several, by name."""

MEMBERS = ("attacks", "callbacks", "logger", "surrogates")

SETTINGS = {
    "seed": Seed,
    "download": bool,
    "force": bool,
    "mlp": bool,
    "backend": Backend,
    "time_limit": Seconds | None,
    "threads": Annotated[int, Ge(1), Le(4096)] | Literal["auto"],
    **{f"paths.{name}": str for name in ("data_dir", "outputs", "records", "store")},
}
"""Types of keys that are not passed to an object under the same name."""


def check_config(cfg: DictConfig, hydra: Any = None, read: Collection[str] | None = None) -> None:
    """Reject a composed configuration with an invalid value, or an override that nothing reads.

    In a sweep, an override that nothing reads only logs a warning, since other runs may read it.

    Raises:
        ConfigError: A value is invalid or an override is unused; names key, value and range.
    """
    check_values(cfg, read)
    check_overrides(cfg, hydra or HydraConfig.get(), read or ())


def check_values(cfg: DictConfig, read: Collection[str] | None = None) -> None:
    """Reject an invalid value; `check_config` also looks for overrides that nothing reads.

    Raises:
        ConfigError: A value is invalid; names key, value and range.
    """
    check_parts(cfg)
    top = {key.split(".")[0] for key in read or ()}
    for key, kind in SETTINGS.items():
        check_value(key, OmegaConf.select(cfg, key), kind)
    for part in (str(key) for key in cfg if key not in ("hydra", "paths")):
        if isinstance(cfg[part], DictConfig) and (read is None or part in top):
            check_keys(cfg[part], f"{part}.")


def compose_all(overrides: Sequence[str], config_dir: Path | None = None) -> DictConfig:
    """Compose the configuration of a command line, Hydra's own part included.

    Args:
        overrides: Overrides, such as `flow=heat`.
        config_dir: Folder with further options, in the layout of `conf/`.

    Raises:
        ConfigError: An override cannot be interpreted, or the folder is missing; the message has
            one line.
    """
    is_list = isinstance(overrides, Sequence) and not isinstance(overrides, str)
    if not is_list or not all(isinstance(override, str) for override in overrides):
        raise ConfigError(
            f"overrides={overrides}: expected a list of text, such as ['flow=heat', 'seed=1']"
        )
    check_arguments(overrides, foreign=config_dir is not None)
    added = []
    if config_dir is not None:
        if not config_dir.is_dir():
            raise ConfigError(
                f"--config-dir {config_dir}: no such folder; name one that holds, for example, "
                "flow/my_flow.yaml"
            )
        added = [f"hydra.searchpath=['file://{config_dir.resolve()}']"]
    try:
        with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            return compose("config", [*added, *overrides], return_hydra_config=True)
    except HydraException as error:
        raise ConfigError(describe(error)) from error


def composed(
    overrides: Sequence[str],
    read: Collection[str] | None = None,
    config_dir: Path | None = None,
    defaults: Sequence[str] = (),
) -> tuple[DictConfig, dict[str, Any]]:
    """Compose and check a configuration outside a Hydra application, with each group's option.

    For the arguments see `compose_all` and `check_config`; `defaults` are overrides that come
    first, and need not be read.
    """
    cfg = compose_all([*defaults, *overrides], config_dir)
    hydra = cfg.hydra
    with open_dict(cfg):
        hydra.overrides.task = hydra.overrides.task[len(defaults) :]
        del cfg["hydra"]
        # Only a Hydra run has an output folder; other commands only write to the cache.
        cfg.paths.output_dir = ""
    check_config(cfg, hydra, read)
    return cfg, dict(hydra.runtime.choices)


def check_parts(cfg: DictConfig) -> None:
    """Reject a configuration in which a part was deleted or is not an object."""
    for key in OmegaConf.load(CONFIG_DIR / "config.yaml"):
        if key not in ("defaults", "hydra") and key not in cfg:
            raise ConfigError(f"~{key!s}: every run reads it; leave this out")
    parts = {key: cfg[key] for key in _PARTS}
    for key in (key for key in MEMBERS if key in cfg):
        if not isinstance(cfg[key], DictConfig):
            raise ConfigError(f"{key}={cfg[key]}: must be parts by name, each with a _target_")
        parts |= {f"{key}.{name!s}": part for name, part in cfg[key].items()}
    for path, part in parts.items():
        if not isinstance(part, DictConfig) or "_target_" not in part:
            shown = "null" if part is None else part
            raise ConfigError(f"{path}={shown}: has no _target_; leave it as its option has it")


def check_overrides(cfg: DictConfig, hydra: Any, read: Collection[str]) -> None:
    """Reject an override that nothing reads; in a sweep only warn, as other runs may read it."""
    for key in cfg:
        if key not in known_keys() and key != "table":
            raise ConfigError(f"{key!s}={cfg[key]}: unknown key; nothing reads it")
    for override in hydra.overrides.hydra:
        key = override.partition("=")[0]
        if hydra.mode == RunMode.RUN and key in ("hydra/launcher", "hydra/sweeper"):
            raise ConfigError(f"{override}: a single run does not read it; add -m for a sweep")
    unread = unread_settings(cfg, hydra.overrides.task, hydra.runtime.choices, read)
    for message in unread.values():
        # In a sweep over models, the key may apply to other runs.
        if hydra.mode != RunMode.MULTIRUN:
            raise ConfigError(message)
        log.warning(message)


def check_keys(node: DictConfig, path: str) -> None:
    """Reject keys that the node's target does not accept, and invalid values."""
    target = node.get("_target_")
    parameters = {} if target is None else parameters_of(imported(target, path))
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name, child in ((str(name), child) for name, child in node.items()):
        key = f"{path}{name}"
        if OmegaConf.is_interpolation(node, name):  # report the key that it refers to
            if OmegaConf.is_config(child):
                continue
            raw = dict(OmegaConf.to_container(node, resolve=False))[name]  # type: ignore[arg-type]
            key = match[1] if (match := REFERENCE.fullmatch(raw)) else key
        if isinstance(child, float) and not math.isfinite(child):
            raise ConfigError(f"{key}={child}: must be a finite number")
        value = OmegaConf.to_container(child, resolve=True) if OmegaConf.is_config(child) else child
        if target is not None and not name.startswith("_"):
            if name in parameters:
                check_argument(key, value, parameters[name])
            elif not takes_any:
                close, known = nearest(name, parameters), ", ".join(parameters)
                meant = f"write {path}{close}={value}, or " if close else ""
                raise ConfigError(f"{key}={value}: unknown key; {meant}use one of {known}")
        if isinstance(child, DictConfig):
            check_keys(child, f"{key}.")
