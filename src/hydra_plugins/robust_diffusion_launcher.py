"""The launcher of `hydra/launcher=cores`; Hydra looks for plugins in this package alone."""

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, configure_log, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from robust_diffusion.checks import Share, validated
from robust_diffusion.errors import ConfigError
from robust_diffusion.system.progress import Progress

log = logging.getLogger(__name__)

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Settings that share the processors among parallel processes, unless they are set already."""

CARDS = "CUDA_VISIBLE_DEVICES"
"""Environment variable that names the GPUs of a process."""


@validated("hydra.launcher")
class ProcessLauncher(Launcher):
    """Runs of a sweep in parallel, in joblib's processes.

    A run whose process dies is recorded as failed, and the others go on: each process is an
    executor of its own, since joblib gives up an executor that has lost one. When this process
    ends, however it does, so do the others.

    Args:
        n_jobs: Runs at a time; -1 for one per processor, -2 for one less, and so on.
        gpus_per_cell: Share of a GPU that a cell takes, in 0..1, where the sweep trains
            on cards: there are no more runs at a time than they have room for. 0 shares nothing
            out, so that every run sees all cards.

    Raises:
        ConfigError: `n_jobs` is 0 or no whole number, or the share is out of range.
    """

    def __init__(self, n_jobs: int = -1, gpus_per_cell: Share = 1.0) -> None:
        if n_jobs == 0:
            raise ConfigError(f"hydra.launcher.n_jobs={n_jobs}: must be a whole number, and not 0")
        processors = os.cpu_count() or 1
        self.n_jobs = n_jobs if n_jobs > 0 else max(1, processors + 1 + n_jobs)
        self.gpus_per_cell = gpus_per_cell

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take what Hydra hands to a launcher."""
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Execute every run; their returns are in the order of the overrides."""
        setup_globals()
        self._configure_log()
        Path(str(self.config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        waiting = deque(enumerate(job_overrides, start=initial_job_idx))
        places = self.places(len(waiting))
        threads = str(max(1, (os.cpu_count() or 1) // len(places)))
        shared = {name: os.environ.get(name, threads) for name in THREADS}
        executors = [_executor(shared | place) for place in places]
        idle = list(range(len(places)))
        running: dict[Future[JobReturn], tuple[int, Sequence[str], int]] = {}
        done: dict[int, JobReturn] = {}
        try:
            while waiting or running:
                while waiting and idle:
                    i, cell = idle.pop(), waiting.popleft()
                    future = executors[i].submit(self.run_there, Singleton.get_state(), *cell)
                    running[future] = (*cell, i)
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    number, overrides, i = running.pop(future)
                    idle.append(i)
                    try:
                        done[number] = future.result()
                    except BrokenExecutor:
                        done[number] = self._lost(number, overrides)
                        executors[i] = _executor(shared | places[i])
        finally:
            for executor in executors:
                executor.shutdown(kill_workers=bool(running))
        return [done[number] for number in sorted(done)]

    def places(self, cells: int) -> list[dict[str, str]]:
        """Per run at a time the environment that names its GPU, if it has one."""
        import torch  # late, since Hydra imports every launcher

        limit = min(self.n_jobs, cells)
        on_cpu = OmegaConf.select(self.config, "trainer.accelerator") == "cpu"
        if not self.gpus_per_cell or on_cpu or not (count := torch.cuda.device_count()):
            return [{}] * limit
        named = (os.environ.get(CARDS) or ",".join(map(str, range(count)))).split(",")[:count]
        return [{CARDS: card} for card in named * int(1 / self.gpus_per_cell + 1e-9)][:limit]

    def run_there(self, state: Any, number: int, overrides: Sequence[str]) -> JobReturn:
        """Execute one run in a process of joblib's."""
        setup_globals()
        Singleton.set_state(state)
        # Configurations do not all travel, and no one at the other end reads them.
        returned = self._run(number, overrides, self.task_function)
        return replace(returned, cfg=None, hydra_cfg=None)

    def _lost(self, number: int, overrides: Sequence[str]) -> JobReturn:
        """Record, here, the failure of a run whose process is no more."""
        from robust_diffusion.experiment.run import record_failure

        def record(cfg: DictConfig) -> None:
            message = "its process was killed or crashed, as for want of memory"
            record_failure(cfg, message, "WorkerError")
            end = {"end": f"failed: {message}"}
            log.error("run %s failed: %s", number, message, extra=end)

        returned = self._run(number, overrides, record)
        self._configure_log()
        return returned

    def _run(self, number: int, overrides: Sequence[str], task: TaskFunction) -> JobReturn:
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = f"{config.hydra.job.name}_{number}"
            config.hydra.job.num = number
        HydraConfig.instance().set_config(config)
        return run_job(
            hydra_context=self.hydra_context,
            config=config,
            task_function=task,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )

    def _configure_log(self) -> None:
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)


def _executor(environment: dict[str, str]) -> Any:
    """An executor of one process."""
    try:
        from joblib.externals.loky import ProcessPoolExecutor
    except ImportError as error:
        remedy = "pip install 'robust-diffusion[launchers]'"
        raise ConfigError(f"hydra/launcher=cores: joblib is not there; {remedy}") from error
    return ProcessPoolExecutor(
        max_workers=1, env=environment, initializer=_follow, initargs=(os.getpid(),)
    )


def _follow(sweep: int) -> None:
    """End this process when that of the sweep has ended, however it did."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the sweep, which ends this one
    Progress.hidden = True  # the one bar is the sweep's

    def end() -> None:
        while os.getppid() == sweep:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
