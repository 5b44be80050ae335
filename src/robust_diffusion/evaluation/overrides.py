"""Checks of a composed configuration: each key and each override is read by something."""

import inspect
import logging
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, get_args

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from robust_diffusion.checks import check_flag
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.header import OWN_FLOW
from robust_diffusion.evaluation.records import Record, is_timing

log = logging.getLogger(__name__)

UNREAD_BY_TIMING = frozenset(
    [
        *("adversary", "attack", "attacks", "budget", "callbacks", "surrogate", "surrogates"),
        *("threat", "training"),
    ]
)


PARTS = ("budget", "data", "model", "threat", "training")
"""Top-level keys of which every cell has one object; `MEMBERS` hold several, by name."""

MEMBERS = ("attacks", "callbacks", "surrogates")


def check_parts(cfg: DictConfig) -> None:
    """Refuse a configuration of which a part was deleted, or is no object of its own."""
    for key in OmegaConf.load(CONFIG_DIR / "config.yaml"):
        if key not in ("defaults", "hydra") and key not in cfg:
            raise ConfigError(f"~{key!s}: every cell reads it; leave this out")
    parts = {key: cfg[key] for key in PARTS}
    for key in (key for key in MEMBERS if key in cfg):
        if not isinstance(cfg[key], DictConfig):
            raise ConfigError(f"{key}={cfg[key]}: must be parts by name, each with a _target_")
        parts |= {f"{key}.{name!s}": part for name, part in cfg[key].items()}
    for path, part in parts.items():
        if not isinstance(part, DictConfig) or "_target_" not in part:
            said = "null" if part is None else part
            raise ConfigError(f"{path}={said}: has no _target_; leave it as its option has it")


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
    config = record["config"]
    source = config["data"]["source"]
    # One that is missing is told of by whoever needs it.
    if key.startswith("dataset.source.") and source and source != config["dataset"]["source"]:
        return (
            f"{key}={value}: scale={record['scale']} draws a small graph instead; drop one of them"
        )
    if part in UNREAD_BY_TIMING and is_timing(record):
        return f"{key}={value}: timing trains and attacks nothing; drop it"
    if part == "certificate" and value != "none":
        return f"{key}={value}: no cell reads it; write certify first"
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
    """Refuse a key that the node's target does not take, and a value that it cannot.

    That is nothing where it needs something, and a flag that is no truth value.
    """
    if "_target_" in node:
        parameters = _parameters(node["_target_"], path)
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for key in (str(key) for key in node if not str(key).startswith("_")):
            if key not in parameters and not takes_any:
                raise ConfigError(
                    f"{path}{key}={node[key]}: unknown key; use one of {', '.join(parameters)}"
                )
            kind = parameters[key].annotation if key in parameters else None
            if node[key] is None and not _takes_none(kind):
                raise ConfigError(f"{path}{key}=null: must be given; leave it as its option has it")
            if kind is bool or (kind == bool | None and node[key] is not None):
                check_flag(f"{path}{key}", node[key])
    for name, child in node.items():
        if isinstance(child, DictConfig):
            check_keys(child, f"{path}{name!s}.")


def _parameters(target: str, path: str) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(resolve_name(target)).parameters
    except Exception as error:  # importing a module of the user's may raise anything
        raise ConfigError(
            f"{path}_target_={target}: cannot be imported ({error}); check the name, and that "
            "Python finds its module"
        ) from error


def _takes_none(kind: Any) -> bool:
    """False where an annotation says so; what has none, or a name of one, may take anything."""
    if kind in (None, Any, inspect.Parameter.empty) or isinstance(kind, str):
        return True
    return kind is type(None) or type(None) in get_args(kind) or None in get_args(kind)
