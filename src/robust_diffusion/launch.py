"""Cells of a sweep in other processes: the part that every launcher shares."""

import logging
import os
import pickle
import select
import signal
import threading
import time
from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, configure_log, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from robust_diffusion.checks import check_number
from robust_diffusion.errors import ConfigError
from robust_diffusion.interrupts import end_on_sigterm

log = logging.getLogger(__name__)

GRACE = 10.0
"""Seconds to clean up, from SIGTERM to SIGKILL."""

CARDS = "CUDA_VISIBLE_DEVICES"
"""Environment variable that names the graphics cards of a process."""


@dataclass(frozen=True)
class Job:
    """Settings that all cells of a sweep have in common."""

    hydra_context: HydraContext
    config: DictConfig
    task_function: TaskFunction

    @property
    def on_cpu(self) -> bool:
        """True if the sweep trains on processors though there may be graphics cards."""
        return bool(OmegaConf.select(self.config, "trainer.accelerator") == "cpu")

    def begin(self) -> Path:
        """Set up Hydra's log and the folder of the sweep, which is returned."""
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        folder = Path(str(self.config.hydra.sweep.dir))
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def run(self, number: int, overrides: Sequence[str]) -> JobReturn:
        """Run one cell in this process, as Hydra's own launcher does."""
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = f"{config.hydra.job.name}_{number}"
            config.hydra.job.num = number
        HydraConfig.instance().set_config(config)
        return run_job(
            hydra_context=self.hydra_context,
            config=config,
            task_function=self.task_function,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )

    def lost(self, number: int, overrides: Sequence[str], message: str) -> JobReturn:
        """Record, here, the failure of a cell whose process is no more."""
        from robust_diffusion.experiment import record_failure

        def record(cfg: DictConfig) -> None:
            record_failure(cfg, message, "WorkerError")
            log.error("cell %s failed: %s", number, message)

        returned = replace(self, task_function=record).run(number, overrides)
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        return returned

    def pickled(self) -> bytes:
        """The job and Hydra's state, for `run_pickled` in another process."""
        try:
            import cloudpickle
        except ImportError as error:
            remedy = "pip install 'robust-diffusion[launchers]'"
            raise ConfigError(f"hydra/launcher: cloudpickle is not there; {remedy}") from error
        # The function under @hydra.main is not to be found by its name.
        pickled: bytes = cloudpickle.dumps((self, Singleton.get_state()))
        return pickled


def unpickled(common: bytes) -> Job:
    """The job of `Job.pickled`, in a process that is to run its cells."""
    setup_globals()
    job: Job
    # From the sweep that started this process.
    job, state = pickle.loads(common)  # noqa: S301 # nosec B301
    Singleton.set_state(state)
    return job


def run_to_send(job: Job, number: int, overrides: Sequence[str]) -> JobReturn:
    """Run one cell for a sweep in another process."""
    # Configurations do not all travel, and nobody at the other end reads them.
    return replace(job.run(number, overrides), cfg=None, hydra_cfg=None)


class JobLauncher(Launcher, ABC):
    """Holds what Hydra hands to a launcher."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take what Hydra hands to a launcher."""
        self.job = Job(hydra_context, config, task_function)


def check_share(gpus_per_cell: float) -> float:
    """The share of a graphics card that a cell takes, if it is in 0..1; else a `ConfigError`."""
    return check_number("hydra.launcher.gpus_per_cell", gpus_per_cell, at_least=0, at_most=1)


def card_places(gpus_per_cell: float) -> list[str]:
    """Per cell for which this machine's graphics cards have room, its card; none without cards."""
    import torch  # late, since Hydra imports every launcher

    if not gpus_per_cell:
        return []
    count = torch.cuda.device_count()
    named = os.environ.get(CARDS) or ",".join(map(str, range(count)))
    on_each = int(1 / gpus_per_cell + 1e-9)
    return named.split(",")[:count] * on_each


def follow(sweep: int) -> None:
    """End this process, as SIGTERM does, when the sweep's process has ended, however it did."""
    end_on_sigterm()

    def end() -> None:
        _wait_for_end(sweep)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def _wait_for_end(process: int) -> None:
    try:
        if hasattr(os, "pidfd_open"):
            select.select([os.pidfd_open(process)], [], [])
            return
        while True:  # systems other than Linux
            os.kill(process, 0)
            time.sleep(1)
    except ProcessLookupError:
        return
