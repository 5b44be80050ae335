"""Sweeper of `hydra/sweeper=grid`; Hydra looks for plugins only in this package."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.errors import ConfigCompositionException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from robust_diffusion.checks import Count, validated
from robust_diffusion.errors import ConfigError, TrainingError
from robust_diffusion.experiment.overrides import check_values
from robust_diffusion.experiment.progress import announce, mlps_of, reporting
from robust_diffusion.experiment.sweeper import covering, plan, without_lacking_keys
from robust_diffusion.experiment.unread import unread_settings
from robust_diffusion.records.header import by_key

log = logging.getLogger(__name__)


@validated("hydra.sweeper")
class GridSweeper(Sweeper):
    """Sweeper that runs one or several products of options.

    Args:
        params: Option -> its values, in every grid.
        grids: Further options -> values, one product per grid.
        max_runs: Largest number of runs of a thinned sweep, at least 1; `None` runs all.
        stand_ins: Dataset -> another one, which replaces it if typed on the command line.
    """

    hydra_context: HydraContext
    config: DictConfig
    launcher: Launcher

    def __init__(
        self,
        params: Mapping[str, Any],
        grids: Sequence[Mapping[str, Any]],
        max_runs: Count | None = None,
        stand_ins: Mapping[str, str] | None = None,
    ) -> None:
        self.plan = partial(
            plan, params=params, grids=grids, max_runs=max_runs, stand_ins=stand_ins
        )

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Store Hydra's arguments, and create the launcher."""
        self.hydra_context, self.config = hydra_context, config
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

    def launch(self, runs: Sequence[Sequence[str]]) -> Sequence[JobReturn]:
        """Execute runs; re-raise the exception of a failed run."""
        try:
            with reporting(self.config, runs):
                jobs = self.launcher.launch(runs, initial_job_idx=0) if runs else []
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

    def sweep(self, arguments: list[str]) -> Any:
        """Launch every run that the command line's overrides, `arguments`, ask for."""
        runs = self.plan(typed=arguments)
        directory = Path(self.config.hydra.sweep.dir)
        directory.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, directory / "multirun.yaml")
        # An invalid value stops the sweep before its first run. One run per value is enough to
        # find it, and checking every run would take minutes.
        try:
            configs = list(map(self._compose, covering(runs)))
        except ConfigCompositionException:
            runs = without_lacking_keys(runs, self._compose)
            configs = list(map(self._compose, covering(runs)))
        runs = list(
            map(list, dict.fromkeys(map(tuple, runs)))
        )  # some now lack what they differed in
        mlps = mlps_of(runs) if self._adds_mlp(configs) else []
        announce(self.config, [*runs, *mlps])
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
        return [self.launch([*runs, *mlps])]

    def _adds_mlp(self, configs: Sequence[DictConfig]) -> bool:
        """Return whether a sweep trains MLPs; experiments have grids, and MLPs of their own."""
        if self.plan.keywords["params"] or any(self.plan.keywords["grids"]):
            return False
        choices = [config.hydra.runtime.choices for config in configs]
        if any(of.model == "mlp" or of.threat == "poisoning" for of in choices):
            return False  # poisoned graphs train other models, too
        return any(config.mlp and config.attacks and not config.timing for config in configs)

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
