"""Checks of a composed configuration: each key and each override is read by something."""

import inspect
import logging

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from robust_diffusion.checks import check_flag
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.header import OWN_FLOW
from robust_diffusion.evaluation.records import Record, is_timing

log = logging.getLogger(__name__)

UNREAD_BY_TIMING = frozenset(
    ["attack", "attacks", "budget", "callbacks", "surrogate", "surrogates", "threat", "training"]
)
"""Options that a timing cell does not read."""


def check_overrides(cfg: DictConfig, record: Record) -> None:
    """Refuse an override that nothing reads; in a sweep, where other cells may read it, warn."""
    groups = {path.name for path in CONFIG_DIR.iterdir() if path.is_dir()}
    known = groups | set(OmegaConf.load(CONFIG_DIR / "config.yaml"))
    known |= {"attacks", "surrogates", "table"}
    for key in cfg:
        if key not in known:
            raise ConfigError(f"{key!s}={cfg[key]}: unknown key; nothing reads it")
    for key, value in record["overrides"].items():
        if message := _unused(key, value, record):
            # In a sweep over models the key is there for the others.
            if HydraConfig.get().mode != RunMode.MULTIRUN:
                raise ConfigError(message)
            log.warning(message)


def _unused(key: str, value: str, record: Record) -> str | None:
    """The reason why nothing reads an override, if nothing does."""
    part = key.split(".")[0]
    if part in UNREAD_BY_TIMING and is_timing(record):
        return f"{key}={value}: timing trains and attacks nothing; drop it"
    if part in ("surrogate", "surrogates") and record["threat"] != "black_box":
        return f"{key}={value}: threat={record['threat']} attacks the victim itself; drop it"
    if part not in ("flow", "solver"):
        return None
    if record["flow"] is None:
        return f"{key}={value}: model={record['model']} has none; drop it"
    if part == "flow" and OWN_FLOW in HydraConfig.get().runtime.choices and value != record["flow"]:
        remedy = f"set model.{key} instead" if "." in key else "drop it"
        return f"{key}={value}: model={record['model']} has its own, {record['flow']}; {remedy}"
    return None


def check_keys(node: DictConfig, path: str = "") -> None:
    """Refuse a key that the node's target does not take, and a flag that is no truth value."""
    if "_target_" in node:
        parameters = inspect.signature(get_object(node["_target_"])).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for key in (str(key) for key in node if not str(key).startswith("_")):
            if key not in parameters and not takes_any:
                raise ConfigError(
                    f"{path}{key}={node[key]}: unknown key; use one of {', '.join(parameters)}"
                )
            kind = parameters[key].annotation if key in parameters else None
            if kind is bool or (kind == bool | None and node[key] is not None):
                check_flag(f"{path}{key}", node[key])
    for name, child in node.items():
        if isinstance(child, DictConfig):
            check_keys(child, f"{path}{name!s}.")
