"""From a composed configuration to a recorded cell: instantiate the parts and call them."""

import logging
import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.loggers import Logger, WandbLogger

from robust_diffusion.arithmetic import set_up_arithmetic
from robust_diffusion.data import GraphDataModule
from robust_diffusion.evaluation import append_record, evaluate_cell
from robust_diffusion.evaluation.header import record_header
from robust_diffusion.evaluation.identity import hashed_config
from robust_diffusion.evaluation.overrides import check_config
from robust_diffusion.evaluation.records import (
    Record,
    check_writable,
    experiments_asking,
    finished_record,
    records_of,
    reference_to,
)
from robust_diffusion.files import locked
from robust_diffusion.interrupts import time_limit
from robust_diffusion.operators import set_backend
from robust_diffusion.results.loggers import log_finished, log_record
from robust_diffusion.store import ArtifactStore
from robust_diffusion.threads import set_threads

log = logging.getLogger(__name__)

Measure = Callable[[GraphDataModule, Any], Record]
"""Measures a cell on its graph, with its loggers, and returns the measured part of its record."""


def run_and_record(cfg: DictConfig) -> Record:
    """Run the cell that `cfg` describes in a Hydra application, and append its record.

    Returns:
        The record that was appended to `paths.records`.

    Raises:
        RobustDiffusionError: A value out of range, damaged data, or a loss that is not finite.
    """
    check_config(cfg)
    set_threads(cfg.threads)
    set_up_arithmetic()
    record = record_header(cfg)
    check_writable(cfg.paths.records)
    if found := _recorded_before(cfg, record):
        return found
    # Of two sweeps in one folder, one computes a cell, and the other waits for it.
    records, cell = Path(cfg.paths.records), record["cell"]
    lock = records.with_name(f".{records.name}.{cell}.lock")
    with locked(lock, waits_for=f"cell {cell}"):
        if found := _recorded_before(cfg, record):
            return found
        with time_limit(cfg.time_limit):
            return _compute(cfg, record)


def _recorded_before(cfg: DictConfig, record: Record) -> Record | None:
    """The finished record of the same cell, with a reference to it appended, if there is one."""
    found = None if cfg.force else finished_record(cfg.paths.records, record["cell"])
    if found is None:
        return None
    log.info("cell %s: done %s; --force repeats it", found["cell"], found.get("time"))
    if found.get("code") != record["code"]:
        log.warning(
            "cell %s: recorded before the code of data, models, training or attacks changed; "
            "--force repeats it",
            found["cell"],
        )
    append_record(cfg.paths.records, reference_to(record))
    if "wandb" in cfg.logger:
        log_finished(found, Path(cfg.paths.store), partial(_wandb_logger, cfg))
    return found


def _compute(cfg: DictConfig, record: Record) -> Record:
    """Measure a cell, and append its record."""
    # Everything is instantiated before anything is trained, so that a bad value costs no time.
    datamodule = instantiate(cfg.data)
    store = ArtifactStore(cfg.paths.store, refresh=cfg.force)
    measure = _timing(cfg, record) if cfg.timing else _evaluation(cfg, record, store)
    record["backend"] = set_backend(cfg.backend)  # may compile, which a mistake need not wait for
    datamodule.setup()
    _set_threads(cfg, datamodule)
    loggers = _loggers(cfg, record)
    for logger in loggers:
        logger.log_hyperparams(record["config"])
    runs = [logger.experiment for logger in loggers if isinstance(logger, WandbLogger)]
    try:
        record |= measure(datamodule, loggers)
        append_record(cfg.paths.records, record)
        for run in runs:
            log_record(run, record, store.directory)
    finally:
        # A run left open would swallow the next cell's curves.
        for run in runs:
            run.finish()
    return record


def _set_threads(cfg: DictConfig, datamodule: GraphDataModule) -> None:
    """Set them again, now that `auto` can tell how large the graph is."""
    widths, layers = (cfg.model.get(key) for key in ("hidden_channels", "num_layers"))
    widths = widths if isinstance(widths, int) else list(widths or [64])
    set_threads(cfg.threads, datamodule.graph.num_edges, widths, layers or 3)


def _loggers(cfg: DictConfig, record: Record) -> list[Logger]:
    """The loggers of a cell."""
    return [
        _wandb_logger(cfg, record=record) if name == "wandb" else instantiate(options)
        for name, options in cfg.logger.items()
    ]


def _wandb_logger(cfg: DictConfig, *, record: Record, **options: Any) -> WandbLogger:
    # The experiment that asks now is in the records only if the cell was done before.
    lines = [*records_of(cfg.paths.records, record["cell"]), record]
    experiments = experiments_asking(lines).get(record["cell"], ())
    # Not by `instantiate` itself, which would make objects of the record's own configuration.
    open_run = instantiate(cfg.logger.wandb, _partial_=True)
    logger: WandbLogger = open_run(record=record, experiments=experiments, **options)
    return logger


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
            cache_key=hashed_config(record["config"]),
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
    parts = {"model": instantiate(cfg.model), "fit": instantiate(cfg.training), "seed": cfg.seed}

    def measure(datamodule: GraphDataModule, logger: Any) -> Record:
        return asdict(timing(datamodule=datamodule, **parts, description=_description(record)))

    return measure


def _description(record: Record) -> str:
    return f"{record['dataset']} {record['flow'] or record['model']}"


def record_failure(cfg: DictConfig, error: str, kind: str) -> None:
    """Append a record of a cell that failed, with its error and the error's class for results."""
    resolved = OmegaConf.create(_finite(OmegaConf.to_container(cfg, resolve=True)))
    append_record(cfg.paths.records, record_header(resolved) | {"error": error, "error_kind": kind})


def _finite(value: Any) -> Any:
    """The value, in which infinity and NaN, which no record can hold, are text."""
    if isinstance(value, dict):
        return {key: _finite(of) for key, of in value.items()}
    if isinstance(value, list):
        return [_finite(of) for of in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
