"""From a composed configuration to a recorded run: instantiate the parts and call them."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from pytorch_lightning.loggers import WandbLogger

from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.data import GraphDataModule
from robust_diffusion.evaluation.load import ModelTraining, Recipe, set_up_process, victim_key
from robust_diffusion.experiment.evaluate_run import RunResult, evaluate_run
from robust_diffusion.experiment.overrides import check_arguments, check_config
from robust_diffusion.experiment.wandb_log import chosen_mode, log_record
from robust_diffusion.operators import set_backend
from robust_diffusion.records import append_record
from robust_diffusion.records.content import with_content
from robust_diffusion.records.header import record_header
from robust_diffusion.records.identity import settings_of_config
from robust_diffusion.records.records import (
    Record,
    check_writable,
    experiments_asking,
    finished_record,
    records_of,
    reference_to,
)
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.results.frame import model_name
from robust_diffusion.system.arithmetic import set_threads
from robust_diffusion.system.files import locked
from robust_diffusion.system.interrupts import time_limit

log = logging.getLogger(__name__)


def run_experiment(overrides: Sequence[str] = ()) -> Record:
    """Run one cell in this process, such as a notebook's, as the command line does.

    Args:
        overrides: Those of the command line, such as `["flow=heat", "seed=1"]`, no sweep.

    Returns:
        Its record, which is appended to `outputs/records.jsonl`; that of an earlier run if there is
        one. Accuracies are in 0..1.

    Raises:
        RobustDiffusionError: A value out of range, damaged data, or a loss that is not finite.
        HydraException: An override that means nothing.

    Examples:
        >>> from robust_diffusion import run_experiment
        >>> graph = [f"dataset.source.num_{key}" for key in ("nodes=200", "edges=400")]
        >>> short = ["training.max_epochs=2", "trainer=cpu", "attack=none", "logger=none"]
        >>> record = run_experiment(["flow=heat", *graph, *short])
        >>> list(record["accuracy"])
        ['clean']
    """
    check_arguments(overrides)
    before = HydraConfig.instance().cfg
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        cfg = compose("config", list(overrides), return_hydra_config=True)
        with open_dict(cfg):
            cfg.hydra.runtime.output_dir = str(Path(cfg.hydra.run.dir).absolute())
        HydraConfig.instance().set_config(cfg)
        try:
            own = [str(key) for key in cfg if key != "hydra"]
            return run_and_record(OmegaConf.masked_copy(cfg, own))
        finally:
            HydraConfig.instance().cfg = before


def run_and_record(cfg: DictConfig) -> Record:
    """Execute the run that `cfg` describes in a Hydra application, and append its record.

    Returns:
        The record that was appended to `paths.records`.

    Raises:
        RobustDiffusionError: A value out of range, damaged data, or a loss that is not finite.
    """
    check_config(cfg)
    set_up_process(cfg.threads)
    wandb = cfg.logger.get("wandb")
    is_on = wandb and chosen_mode(wandb.mode) != "disabled"
    cell = _Cell(
        record_header(cfg),
        Path(cfg.paths.records),
        ArtifactStore(cfg.paths.store, refresh=cfg.force),
        # Not by `instantiate` itself, which would make objects of the record's own configuration.
        instantiate(wandb, _partial_=True) if is_on else None,
    )
    check_writable(cell.path)
    if found := cell.recorded_before():
        return found
    # Of two sweeps in one folder, one computes a run, and the other waits for it.
    name = cell.record["run"]
    lock = cell.path.with_name(f".{cell.path.name}.{name}.lock")
    with locked(lock, waits_for=f"run {name}"):
        if found := cell.recorded_before():
            return found
        with time_limit(cfg.time_limit):
            # Everything is instantiated before anything is trained, so that a bad value costs no
            # time; a backend may be compiled, which a mistake need not wait for.
            datamodule: GraphDataModule = instantiate(cfg.data)
            measure = _measure(cfg, cell)
            cell.record["backend"] = set_backend(cfg.backend)
            datamodule.setup()
            graph, nodes = datamodule.graph, len(datamodule.target_nodes)
            size = f"{graph.num_nodes:,} nodes, {graph.num_edges // 2:,} edges"
            told = f"dataset {datamodule.name}: {size}, {nodes} target nodes"
            log.info("%s", told, extra={"shared": True})
            widths, layers = (cfg.model.get(key) for key in ("hidden_channels", "num_layers"))
            widths = widths if isinstance(widths, int) else list(widths or [64])
            set_threads(cfg.threads, datamodule.graph.num_edges, widths, layers or 3)
            loggers = [
                cell.open_run() if key == "wandb" else instantiate(options)
                for key, options in cfg.logger.items()
                if key != "wandb" or is_on
            ]
            logged = {} if cfg.timing else {"logger": loggers}
            return cell.compute(partial(measure, datamodule=datamodule, **logged), loggers)


@dataclass(frozen=True)
class _Cell:
    """A run to execute: header of its record, file of records, store, and W&B's run if any."""

    record: Record
    path: Path
    store: ArtifactStore
    wandb: Callable[..., WandbLogger] | None

    def recorded_before(self) -> Record | None:
        """The finished record of the same run, with a reference to it appended, if there is one.

        None is looked for if all is to be recomputed.
        """
        name = self.record["run"]
        found = None if self.store.refresh else finished_record(self.path, name)
        if found is None:
            return None
        done = found.get("time")
        end = {"end": "recorded before", "reused": True}
        log.info("run %s: done %s; --force repeats it", name, done, extra=end)
        if found.get("code") != self.record["code"]:
            log.warning(
                "recorded before the code of data, models, training or attacks changed; "
                "--force repeats it"
            )
        append_record(self.path, reference_to(self.record))
        if self.wandb:
            run = self.open_run(found, finished=True).experiment
            try:
                log_record(run, found, self.store.directory)
            finally:
                run.finish()
        return found

    def open_run(self, record: Record | None = None, **options: Any) -> WandbLogger:
        """W&B's run of this one, tagged by every experiment that asked for it."""
        assert self.wandb is not None
        record = record or self.record
        # The experiment that asks now is in the records only if the run was done before.
        lines = [*records_of(self.path, record["run"]), record]
        experiments = experiments_asking(lines).get(record["run"], ())
        return self.wandb(record=record, experiments=experiments, **options)

    def compute(self, measure: Callable[[], Any], loggers: list[Any]) -> Record:
        """Measure the run, and append its record."""
        for logger in loggers:
            logger.log_hyperparams(self.record["config"])
        runs = [logger.experiment for logger in loggers if isinstance(logger, WandbLogger)]
        try:
            measured = asdict(measure())
            keys = ("declared", "spent", "unbounded")
            budget = {key: measured.pop(key) for key in keys if key in measured}
            record = self.record | ({"budget": budget} if budget else {}) | measured
            append_record(self.path, record)
            for run in runs:
                log_record(run, record, self.store.directory)
        finally:
            # A run left open would swallow the next run's curves.
            for run in runs:
                run.finish()
        return record


def _measure(cfg: DictConfig, cell: _Cell) -> Callable[..., Any]:
    """Trains and tests, or times one step of an untrained model, of a graph."""
    record = cell.record
    model, fit = instantiate(cfg.model), instantiate(cfg.training)
    description = f"{record['dataset']} {model_name(record)}"
    if cfg.timing:
        if HydraConfig.get().runtime.choices.get("hydra/launcher", "basic") != "basic":
            log.warning("hydra/launcher: parallel runs disturb each other's times")
        parts = {"model": model, "fit": fit, "seed": cfg.seed, "description": description}
        return partial(instantiate(cfg.timing), **parts)
    key = with_content(settings_of_config(record["config"]), record.get("user_files", {}), code={})
    callbacks = [instantiate(options) for options in cfg.callbacks.values()]
    recipe = Recipe(model, fit, victim_key(key), callbacks)
    parts = {
        "threat": instantiate(cfg.threat),
        "attacks": {name: instantiate(options) for name, options in cfg.attacks.items()},
        "budget": instantiate(cfg.budget),
        "cache_key": key,
        "description": description,
    }
    folder = Path(cfg.paths.output_dir) / "checkpoints"

    def measure(datamodule: GraphDataModule, logger: Any) -> RunResult:
        train = ModelTraining(datamodule, cell.store, cfg.seed, folder)
        return evaluate_run(train, recipe, logger=logger, **parts)

    return measure


def record_failure(cfg: DictConfig, error: str, kind: str) -> None:
    """Append a record of a run that failed, with its error and the error's class for results."""
    resolved = OmegaConf.create(_finite(OmegaConf.to_container(cfg, resolve=True)))
    append_record(cfg.paths.records, record_header(resolved) | {"error": error, "error_kind": kind})


def _finite(value: Any) -> Any:
    """The value, in which infinity and NaN, which no record can hold, are text."""
    if isinstance(value, dict):
        return {key: _finite(of) for key, of in value.items()}
    if isinstance(value, list):
        return [_finite(of) for of in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
