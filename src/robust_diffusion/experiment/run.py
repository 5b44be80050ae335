"""From a composed configuration to a recorded run: instantiate its parts and run them."""

import logging
import math
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from pytorch_lightning.loggers import Logger, WandbLogger
from torch.nn.parameter import is_lazy

from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError, RobustDiffusionError
from robust_diffusion.evaluation.load import ModelTraining, Recipe, set_up_process, victim_key
from robust_diffusion.experiment.evaluate_run import RunResult, evaluate_run
from robust_diffusion.experiment.overrides import check_config, compose_all
from robust_diffusion.experiment.wandb_log import chosen_mode, close_run, log_record
from robust_diffusion.models.modules import own_context
from robust_diffusion.operators import set_backend
from robust_diffusion.records.content import with_content
from robust_diffusion.records.header import record_header, request_of, sweep_name
from robust_diffusion.records.record import Record
from robust_diffusion.records.records import read_record, read_sweep, save_record, save_request
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.arithmetic import set_threads
from robust_diffusion.system.files import locked
from robust_diffusion.system.interrupts import time_limit

log = logging.getLogger(__name__)


@own_context()
def run_experiment(overrides: Sequence[str] = ()) -> Record:
    """Execute one run as the command line does, but in this process, such as a notebook.

    Threads take turns, and the random state of Python, numpy and torch stays as it was.

    Args:
        overrides: Overrides as on the command line, such as `["flow=heat", "seed=1"]`; sweeps are
            not supported.

    Returns:
        The record of the run, which is saved in `outputs/records`; or the record of an earlier run
        with the same settings. Accuracies are in 0..1.

    Raises:
        RobustDiffusionError: A value out of range, damaged data, or a loss that is not finite.

    Examples:
        >>> from robust_diffusion import run_experiment
        >>> graph = [f"dataset.source.num_{key}" for key in ("nodes=200", "edges=400")]
        >>> short = ["training.max_epochs=2", "trainer=cpu", "attack=none", "logger=none"]
        >>> record = run_experiment(["flow=heat", *graph, *short])
        >>> list(record.accuracy)
        ['clean']
    """
    cfg, before = compose_all(overrides), HydraConfig.instance().cfg
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - the run seeds them
    with open_dict(cfg):
        cfg.hydra.runtime.output_dir = str(Path(cfg.hydra.run.dir).absolute())
    HydraConfig.instance().set_config(cfg)
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            return run_and_record(OmegaConf.masked_copy(cfg, [str(k) for k in cfg if k != "hydra"]))
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        HydraConfig.instance().cfg = before


def run_and_record(cfg: DictConfig) -> Record:
    """Execute the run that `cfg` describes in a Hydra application, and save its record.

    Returns:
        The record, which is saved in `paths.records`.

    Raises:
        RobustDiffusionError: A value out of range, damaged data, or a loss that is not finite.
    """
    check_config(cfg)
    # The record of a timing names the backend, which is therefore set first.
    set_up_process(cfg.threads, cfg.backend if cfg.timing else None)
    record, folder = record_header(cfg), Path(cfg.paths.records)
    save_request(folder, record.run, request_of(cfg, record))
    # If two sweeps share a folder, the second waits for the first to finish the run.
    with locked(folder / f".{record.run}.lock", waits_for=f"run {record.run}"):
        earlier = None if cfg.force else read_record(folder, record.run)
        if earlier is not None and earlier.error is None:
            _reuse(earlier, cfg, record)
            return earlier
        with time_limit(cfg.time_limit):
            return _compute(cfg, record)


def _reuse(earlier: Record, cfg: DictConfig, record: Record) -> None:
    """Report that the same run was recorded before, and log it to W&B."""
    end = {"end": "recorded before", "reused": True}
    log.info("run %s: done %s; --force repeats it", record.run, earlier.time, extra=end)
    if earlier.code != record.code:
        log.warning(
            "recorded before the code of data, models, training or attacks changed; "
            "--force repeats it"
        )
    if logger := _wandb_logger(cfg, earlier, finished=True):
        try:
            log_record(logger.experiment, earlier, Path(cfg.paths.store))
        finally:
            logger.experiment.finish()


def _wandb_logger(cfg: DictConfig, record: Record, *, finished: bool = False) -> WandbLogger | None:
    """Open the W&B run of a record if W&B is on, tagged with every experiment that requested it."""
    wandb = cfg.logger.get("wandb")
    if not wandb or chosen_mode(wandb.mode) == "disabled":
        return None
    # `record` is not passed to `instantiate`, which would instantiate the configuration in it.
    if finished:
        record = read_record(cfg.paths.records, record.run, with_sweeps=True) or record
    sweep = read_sweep(sweep_name(cfg, HydraConfig.get().sweep.dir), cfg.paths.records)
    about = {"record": record, "sweep": sweep, "finished": finished}
    opened: WandbLogger = instantiate(wandb, _partial_=True)(**about)
    return opened


def _open_logger(key: str, cfg: DictConfig, record: Record) -> Logger | None:
    """Open a logger of the configuration, and log the configuration; `None` if W&B is off."""
    try:
        wandb = key == "wandb"
        logger = _wandb_logger(cfg, record) if wandb else instantiate(cfg.logger[key])
        if logger is not None:
            logger.log_hyperparams(record.config.whole | {"seed": record.seed})
    except RobustDiffusionError:
        raise
    except (TypeError, ValueError) as error:  # from the library, which checks options only now
        raise ConfigError(f"logger.{key}: failed to start, check its options: {error}") from error
    return logger


def _compute(cfg: DictConfig, record: Record) -> Record:
    """Measure the run, and save its record."""
    # All parts are instantiated before training, so that a bad value fails at once, and before the
    # backend is set, which may have to be compiled.
    datamodule: GraphDataModule = instantiate(cfg.data)
    measure = _measure(cfg, record)
    backend = set_backend(cfg.backend)
    datamodule.setup()
    graph, nodes = datamodule.graph, len(datamodule.target_nodes)
    size = f"{graph.num_nodes:,} nodes, {graph.num_edges // 2:,} edges"
    log.info("dataset %s: %s, %d target nodes", datamodule.name, size, nodes)
    widths, layers = (cfg.model.get(key) for key in ("hidden_channels", "num_layers"))
    widths = widths if isinstance(widths, int) else list(widths or [64])
    set_threads(cfg.threads, graph.num_edges, widths, layers or 3)
    opened = (_open_logger(str(key), cfg, record) for key in cfg.logger)
    loggers = [logger for logger in opened if logger is not None]
    with ExitStack() as stack:
        runs = [logger.experiment for logger in loggers if isinstance(logger, WandbLogger)]
        for run in runs:  # a run left open would receive the curves of the next one
            stack.push(partial(close_run, run))
        record |= {"backend": backend, **asdict(measure(datamodule, loggers))}
        save_record(record, cfg.paths.records)
        for run in runs:
            log_record(run, record, Path(cfg.paths.store))
    return record


def _measure(cfg: DictConfig, record: Record) -> Callable[[GraphDataModule, Sequence[Any]], Any]:
    """Return a function that trains and tests on a graph, or times a step of an untrained model."""
    model, fit = instantiate(cfg.model), instantiate(cfg.training)
    description = f"{record.dataset} {record.model_name}"
    if cfg.timing:
        if HydraConfig.get().runtime.choices.get("hydra/launcher", "basic") != "basic":
            log.warning("hydra/launcher: parallel runs disturb each other's times")
        step = instantiate(cfg.timing)
        return lambda datamodule, _: step(
            datamodule=datamodule, model=model, fit=fit, seed=cfg.seed, description=description
        )
    key = with_content(record.config.settings | {"seed": record.seed}, record.user_files, code={})
    callbacks = [instantiate(options) for options in cfg.callbacks.values()]
    recipe = Recipe(model, fit, victim_key(key), callbacks)
    parts = {
        "threat": instantiate(cfg.threat),
        "attacks": {name: instantiate(options) for name, options in cfg.attacks.items()},
        "budget": instantiate(cfg.budget),
        "cache_key": key,
        "description": description,
    }
    store = ArtifactStore(cfg.paths.store, refresh=cfg.force)
    folder = Path(cfg.paths.output_dir) / "checkpoints"

    def measure(datamodule: GraphDataModule, logger: Sequence[Any]) -> RunResult:
        train = ModelTraining(datamodule, store, cfg.seed, folder)
        _log_size(cfg, f"{record.model_name} on {record.dataset}", train.untrained(model))
        return evaluate_run(train, recipe, logger=logger, **parts)

    return measure


def _log_size(cfg: DictConfig, name: str, model: torch.nn.Module) -> None:
    """Log layers, width and parameters of a model, which differ between models of one sweep."""
    layers, width = (cfg.model.get(key) for key in ("num_layers", "hidden_channels"))
    shape = f"{layers} layers x {width}, " if layers and width else ""
    count = sum(p.numel() for p in model.parameters() if not is_lazy(p))
    log.info("%s: %s%s parameters", name, shape, f"{count:,}", extra={"size": True})


def record_failure(cfg: DictConfig, error: str, kind: str) -> None:
    """Save the record of a failed run, with its error and the class of the error."""
    cfg = OmegaConf.create(_finite(OmegaConf.to_container(cfg, resolve=True)))
    record = record_header(cfg) | {"error": error, "error_kind": kind}
    request = request_of(cfg, record)._replace(error=error)
    save_request(cfg.paths.records, record.run, request)
    save_record(record, cfg.paths.records)


def _finite(value: Any) -> Any:
    """Replace infinity and NaN, which JSON cannot hold, by text."""
    if isinstance(value, dict):
        return {key: _finite(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_finite(child) for child in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
