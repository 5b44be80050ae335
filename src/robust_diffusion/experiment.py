"""From a composed configuration to a recorded cell: instantiate the parts and call them."""

import inspect
import logging
import os
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.loggers import WandbLogger

from robust_diffusion.arithmetic import set_up_arithmetic
from robust_diffusion.checks import check_choice, check_flag, check_whole
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation import append_record, evaluate_cell
from robust_diffusion.evaluation.identity import cell_id, shaping
from robust_diffusion.evaluation.provenance import revision, versions
from robust_diffusion.evaluation.records import (
    Record,
    check_writable,
    finished_record,
    is_timing,
)
from robust_diffusion.evaluation.timing import machine
from robust_diffusion.evaluation.trained import code_hash
from robust_diffusion.operators import Backend, set_backend
from robust_diffusion.results.loggers import log_record
from robust_diffusion.store import ArtifactStore

log = logging.getLogger(__name__)

Measure = Callable[[GraphDataModule, Any], Record]
"""Measures a cell on its graph, with its logger, and gives what its record holds of that."""

UNTIMED = frozenset(
    ["attack", "attacks", "budget", "callbacks", "surrogate", "surrogates", "threat", "training"]
)
"""Options that a timing cell does not read."""

OWN_FLOW = "flow@model.flow"
"""Hydra's name of the choice of a model that brings its own flow, whatever `flow` says."""


def run_and_record(cfg: DictConfig) -> Record:
    """Run the cell that `cfg` describes and append its record.

    Args:
        cfg: The composed configuration, inside a Hydra application.

    Returns:
        The record that was appended to `paths.records`.

    Raises:
        RobustDiffusionError: A value out of range, damaged data, or a loss that is not finite.
    """
    torch.set_num_threads(check_whole("threads", cfg.threads, at_least=1))
    set_up_arithmetic()
    check_choice("backend", cfg.backend, get_args(Backend))
    record = _header(cfg)
    check_writable(cfg.paths.records)
    _check_used(cfg, record)
    _check_keys(cfg)
    check_flag("force", cfg.force)
    # Everything is instantiated before anything is trained, so that a bad value costs no time.
    if not cfg.force and (found := finished_record(cfg.paths.records, record["cell"])):
        log.info("cell %s: done %s; --force repeats it", found["cell"], found["time"])
        if found.get("code") != record["code"]:
            log.warning(
                "cell %s: recorded before the code of data, models, training or attacks changed; "
                "--force repeats it",
                found["cell"],
            )
        append_record(cfg.paths.records, _reference(record))
        return found
    datamodule = instantiate(cfg.data)
    store = ArtifactStore(cfg.paths.store, refresh=cfg.force)
    measure = _timing(cfg, record) if cfg.timing else _evaluation(cfg, record, store)
    record["backend"] = set_backend(cfg.backend)  # may compile, which a mistake need not wait for
    datamodule.setup()
    logger: Any = instantiate(cfg.logger) if cfg.logger else False
    if logger:
        logger.log_hyperparams(record["config"])
    try:
        record |= measure(datamodule, logger)
        append_record(cfg.paths.records, record)
        if isinstance(logger, WandbLogger):
            log_record(logger.experiment, record, store.directory)
    finally:
        # A run left open would swallow the next cell's curves.
        if isinstance(logger, WandbLogger):
            logger.experiment.finish()
    return record


def _evaluation(cfg: DictConfig, record: Record, store: ArtifactStore) -> Measure:
    """The parts of a cell that trains and tests."""
    parts = {
        "model": instantiate(cfg.model),
        "fit": instantiate(cfg.training),
        "threat": instantiate(cfg.threat),
        "attacks": {name: instantiate(options) for name, options in cfg.attacks.items()},
        "budget": instantiate(cfg.budget),
        "callbacks": [instantiate(options) for options in cfg.callbacks.values()],
    }

    def measure(datamodule: GraphDataModule, logger: Any) -> Record:
        result = evaluate_cell(
            datamodule=datamodule,
            **parts,
            seed=cfg.seed,
            directory=Path(cfg.paths.output_dir) / "checkpoints",
            store=store,
            shaped_by=shaping(record["config"]),
            logger=logger,
            description=_description(record),
        )
        measured = asdict(result)
        budget = {key: measured.pop(key) for key in ("declared", "spent", "unbounded")}
        return {"budget": budget, **measured}

    return measure


def _timing(cfg: DictConfig, record: Record) -> Measure:
    """The parts of a cell that times one step of an untrained model."""
    if HydraConfig.get().runtime.choices.get("hydra/launcher", "basic") != "basic":
        log.warning("hydra/launcher: cells that run side by side disturb each other's times")
    timing = instantiate(cfg.timing)
    parts = {"model": instantiate(cfg.model), "fit": instantiate(cfg.training)}

    def measure(datamodule: GraphDataModule, logger: Any) -> Record:
        description = _description(record)
        return asdict(
            timing(datamodule=datamodule, **parts, seed=cfg.seed, description=description)
        )

    return measure


def _description(record: Record) -> str:
    return f"{record['dataset']} {record['flow'] or record['model']}"


def record_failure(cfg: DictConfig, error: str, kind: str) -> None:
    """Append a record of a cell that did not finish, with its error in place of results.

    Args:
        cfg: The cell's configuration.
        error: What went wrong, in one line.
        kind: The error's class; DataError, for example, means that there are no data.
    """
    append_record(cfg.paths.records, _header(cfg) | {"error": error, "error_kind": kind})


def _reference(record: Record) -> Record:
    """What is recorded of a cell that was done before: that this run asked for it, too."""
    kept = ("cell", "experiment", "scale", "overrides", "directory", "job", "time")
    return {key: record[key] for key in kept} | {"reference": True}


def _check_used(cfg: DictConfig, record: Record) -> None:
    """Refuse an override that nothing reads."""
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
    """Why nothing reads an override, if nothing does."""
    part = key.split(".")[0]
    if part in UNTIMED and is_timing(record):
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


def _check_keys(node: DictConfig, path: str = "") -> None:
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
            _check_keys(child, f"{path}{name!s}.")


def _header(cfg: DictConfig) -> Record:
    hydra: Any = HydraConfig.get()
    choices = hydra.runtime.choices
    uses_flow = "flow" in cfg.model
    config: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True)  # type: ignore[assignment]
    # Where a cell writes does not shape its result, and differs between machines.
    config = {
        key: value for key, value in config.items() if key not in ("paths", "logger", "table")
    }
    if timing := config["timing"]:
        config["timing"] = timing | {"on": machine()}
    attacked = None if timing else choices.threat
    return {
        "cell": cell_id(config),
        "code": code_hash(),
        "experiment": choices.experiment,
        "scale": choices.get("scale", "full"),
        "dataset": cfg.dataset.name,
        "difficulty": cfg.difficulty,
        "model": choices.model,
        "flow": choices.get(OWN_FLOW, choices.flow) if uses_flow else None,
        "solver": choices.solver if uses_flow else None,
        "fidelity": choices.fidelity,
        "threat": attacked,
        "surrogates": list(config.get("surrogates", {})) if attacked == "black_box" else [],
        "seed": cfg.seed,
        "budget": {"declared": {k: v for k, v in config["budget"].items() if k != "_target_"}},
        "config": config,
        "overrides": {
            key: value
            for key, value in (
                o.lstrip("+").split("=", 1) for o in hydra.overrides.task if "=" in o
            )
            if not key.startswith("paths.") and key != "force"
        },
        "versions": versions(),
        "backend": cfg.backend,
        "revision": revision(),
        # Relative to the records, so that a folder of results can be moved as a whole.
        "directory": os.path.relpath(cfg.paths.output_dir, Path(cfg.paths.records).parent),
        "job": 0 if OmegaConf.is_missing(hydra.job, "num") else hydra.job.num,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
