"""Sweepers of `hydra/sweeper=grid` and `tune`; Hydra looks for plugins only in this package."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any, Literal

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.errors import ConfigCompositionException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from robust_diffusion.checks import Count, Share, validated
from robust_diffusion.errors import ConfigError, TrainingError, needs_extra
from robust_diffusion.experiment.overrides import check_values
from robust_diffusion.experiment.progress import SweepReport
from robust_diffusion.experiment.sweeper import covering, plan, without_lacking_keys
from robust_diffusion.experiment.unread import unread_settings
from robust_diffusion.records.header import by_key

if TYPE_CHECKING:
    from robust_diffusion.experiment.search import Search

log = logging.getLogger(__name__)


class _LaunchingSweeper(Sweeper):
    """Base of the sweepers, which launches runs and saves configurations."""

    hydra_context: HydraContext
    config: DictConfig
    launcher: Launcher
    batches: Mapping[str, Any] = {}
    """Arguments of `SweepReport`, if runs are launched in several batches."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Store Hydra's arguments, and create the launcher."""
        self.hydra_context, self.config = hydra_context, config
        self.report = SweepReport(config, **self.batches)
        if "SlurmLauncher" in config.hydra.launcher._target_ and which("srun") is None:
            remedy = "run on a login node of the cluster, or take hydra/launcher=local"
            raise ConfigError(f"hydra/launcher=slurm: srun not found; {remedy}")
        if "hydra_ray_launcher" in config.hydra.launcher._target_:
            if find_spec("hydra_plugins.hydra_ray_launcher") is None:
                remedy = "pip install 'robust-diffusion[ray]'"
                raise ConfigError(f"hydra/launcher=ray: not installed; {remedy}")
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # sends no usage statistics
            # A run that asks for no GPU sees all of its machine, as with other launchers.
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def save(self, config: Any, name: str) -> None:
        """Write a configuration to the sweep's folder."""
        directory = Path(self.config.hydra.sweep.dir)
        directory.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(config, directory / name)

    def launch(self, runs: Sequence[Sequence[str]], first: int = 0) -> Sequence[JobReturn]:
        """Execute runs, numbered from `first`; re-raise the exception of a failed run."""
        try:
            with self.report.printing(runs):
                jobs = self.launcher.launch(runs, initial_job_idx=first) if runs else []
        except Exception as error:
            library = type(error).__module__.partition(".")[0]
            if library not in ("ray", "submitit") and not isinstance(error, ConnectionError):
                raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            remedy = "finished runs are kept: ask for the sweep again"
            raise TrainingError(
                f"hydra/launcher: a run or its cluster is gone ({reason}); {remedy}"
            ) from error
        for job in jobs:
            _ = job.return_value
        return jobs


@validated("hydra.sweeper")
class GridSweeper(_LaunchingSweeper):
    """Sweeper that runs one or several products of options.

    Args:
        params: Option -> its values, in every grid.
        grids: Further options -> values, one product per grid.
        max_cells: Largest number of runs of a thinned sweep, at least 1; `None` runs all.
        stand_ins: Dataset -> another one, which replaces it if typed on the command line.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        grids: Sequence[Mapping[str, Any]],
        max_cells: Count | None = None,
        stand_ins: Mapping[str, str] | None = None,
    ) -> None:
        self.plan = partial(
            plan, params=params, grids=grids, max_cells=max_cells, stand_ins=stand_ins
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Launch every run that the command line's overrides, `arguments`, ask for."""
        runs = self.plan(typed=arguments)
        self.save(self.config, "multirun.yaml")
        # An invalid value stops the sweep before its first run. One run per value is enough to
        # find it, and checking every run would take minutes.
        try:
            configs = list(map(self._compose, covering(runs)))
        except ConfigCompositionException:
            runs = without_lacking_keys(runs, self._compose)
            configs = list(map(self._compose, covering(runs)))
        wrong: dict[str, None] = {}
        for config in configs:
            try:
                # Values that refer to a run's folder, such as a logger, are checked in the run.
                with suppress(InterpolationResolutionError):
                    check_values(config, {str(key) for key in config} - {"logger"})
            except ConfigError as error:
                wrong[str(error)] = None
        if wrong:
            raise ConfigError("; ".join(wrong))
        self._refuse_unread(by_key(arguments), runs)
        # Runs that differed only in a removed key are now the same.
        return [self.launch(list(map(list, dict.fromkeys(map(tuple, runs)))))]

    def _refuse_unread(self, typed: Iterable[str], runs: Sequence[list[str]]) -> None:
        """Reject a key of the command line that no run reads; runs warn of their own."""
        # Seeds differ in nothing that is read, and most keys are read by one of the first runs.
        others = {tuple(o for o in run if not o.startswith("seed=")): run for run in runs}
        left, unread = set(typed), dict[str, str]()
        for run in (*covering(others.values()), *others.values()):
            config = self._compose(run)
            messages = unread_settings(config, run, config.hydra.runtime.choices)
            left -= by_key(run).keys() - messages.keys()
            unread = {key: text for key, text in (unread | messages).items() if key in left}
            if not unread:
                return
        if unread:
            raise ConfigError("; ".join(unread.values()))

    def _compose(self, overrides: list[str]) -> DictConfig:
        return self.hydra_context.config_loader.load_sweep_config(self.config, overrides)


@validated("hydra.sweeper")
class TuneSweeper(_LaunchingSweeper):
    """Sweeper that searches for the hyper-parameters of the best validation accuracy.

    Trials are ordinary runs: finished ones are not repeated, and the same seed proposes the same
    trials, so an interrupted search continues where it stopped.

    Args:
        params: Option -> range to search, or a fixed value; see `Search`. An override on the
            command line takes precedence.
        direction: `maximize` or `minimize`.
        n_trials: Number of trials, at least 1.
        n_jobs: Number of trials proposed at a time, at least 1; a launcher may run them in
            parallel.
        max_failure_rate: Share of these that may fail, in 0..1; if more fail, the search ends.
        sampler: Options `seed` and `n_startup_trials` of `Search`.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        direction: Literal["maximize", "minimize"],
        n_trials: Count,
        n_jobs: Count,
        max_failure_rate: Share,
        sampler: Mapping[str, Any],
    ) -> None:
        self.n_trials, self.n_jobs = n_trials, n_jobs
        self.batches = {"total": n_trials, "swept": list(params)}
        self.max_failure_rate = max_failure_rate
        self.overrides = [f"{option}={values}" for option, values in params.items()]
        self.options = {"direction": direction, **sampler}

    def sweep(self, arguments: list[str]) -> Any:
        """Run the trials, and write the best one to `optimization_results.yaml` in their folder.

        Raises:
            ConfigError: Optuna is missing, or too old.
            TrainingError: All trials failed, or more than `max_failure_rate` allows.
        """
        search = self._search(arguments)
        self.save(self.config, "multirun.yaml")
        jobs: list[JobReturn] = []
        while (left := self.n_trials - len(jobs)) > 0:
            trials = search.propose(min(self.n_jobs, left))
            returned = self.launch(trials, first=len(jobs))
            values = [job.return_value for job in returned]
            search.judge(values)
            jobs += returned
            if (failed := values.count(None)) > self.max_failure_rate * len(values):
                raise TrainingError(
                    f"hydra.sweeper.max_failure_rate={self.max_failure_rate:g}: {failed} of "
                    f"{len(values)} trials failed; the lines above say why"
                )
        if (best := search.best()) is None:
            raise TrainingError("every trial failed; the lines above say why")
        value, params = best
        log.info("best value: %s, of %s", value, " ".join(f"{k}={v}" for k, v in params.items()))
        summary = {"name": "optuna", "best_value": value, "best_params": params}
        self.save(OmegaConf.create(summary), "optimization_results.yaml")
        return [jobs]

    def _search(self, arguments: Sequence[str]) -> "Search":
        # Imported late, since Hydra imports every plugin.
        with needs_extra("sweepers", "hydra/sweeper=tune, Optuna 4 or later"):
            from robust_diffusion.experiment.search import Search
        return Search([*self.overrides, *arguments], **self.options)
