"""Launcher of `hydra/launcher=cores`; Hydra looks for plugins only in this package."""

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from copy import copy
from dataclasses import replace
from typing import Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn
from omegaconf import DictConfig, OmegaConf

from robust_diffusion.checks import Share, validated
from robust_diffusion.errors import ConfigError, needs_extra
from robust_diffusion.experiment.progress import SweepProgress, report
from robust_diffusion.system.cores import usable_cores
from robust_diffusion.system.progress import Progress

log = logging.getLogger(__name__)

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables that divide the cores among parallel processes, unless already set."""

CARDS = "CUDA_VISIBLE_DEVICES"
"""Environment variable that names the GPUs of a process."""


@validated("hydra.launcher")
class ProcessLauncher(BasicLauncher):
    """Launcher that executes runs in parallel processes, which joblib provides.

    A run whose process dies is recorded as failed, and the others continue. To this end each
    process is a separate executor, since a joblib executor stops once it has lost a process. When
    this process ends, for whichever reason, so do the others.

    Args:
        n_jobs: Number of parallel runs; -1 for one per core that this process may use, -2 for one
            less, and so on.
        gpus_per_run: Share of a GPU that a run takes, in 0..1; the GPUs then limit the number of
            parallel runs. With 0, there is no such limit and every run sees all GPUs.

    Raises:
        ConfigError: `n_jobs` is 0 or not a whole number, or the share is out of range.
    """

    def __init__(self, n_jobs: int = -1, gpus_per_run: Share = 1.0) -> None:
        super().__init__()
        if n_jobs == 0:
            raise ConfigError(f"hydra.launcher.n_jobs={n_jobs}: must be a whole number, and not 0")
        self.n_jobs = n_jobs if n_jobs > 0 else max(1, usable_cores() + 1 + n_jobs)
        self.gpus_per_run = gpus_per_run

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Execute every run, and return the results in the order of the overrides."""
        super().launch([], initial_job_idx)  # creates the folder
        waiting = deque(enumerate(job_overrides, start=initial_job_idx))
        places = self.places(len(waiting))
        processes = list(map(_process, places))
        idle = list(range(len(places)))
        running: dict[Future[tuple[JobReturn, Any]], tuple[int, Sequence[str], int]] = {}
        done: dict[int, JobReturn] = {}
        try:
            while waiting or running:
                while waiting and idle:
                    run, i = waiting.popleft(), idle.pop()
                    arguments = Singleton.get_state(), *run
                    running[processes[i].submit(self.run_there, *arguments)] = (*run, i)
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    number, overrides, i = running.pop(future)
                    idle.append(i)
                    try:
                        done[number], lines = future.result()
                        report(*lines)
                    except BrokenExecutor:
                        processes[i], lost = _process(places[i]), copy(self)
                        lost.task_function = _record_lost
                        done[number] = lost.run(number, overrides)
        finally:
            for process in processes:
                process.shutdown(kill_workers=bool(running))
        return [done[number] for number in sorted(done)]

    def places(self, runs: int) -> list[dict[str, str]]:
        """Return the environment of each process: its number of threads, and its GPU if any."""
        import torch  # late, since Hydra imports every launcher

        assert self.config is not None
        limit, cards = min(self.n_jobs, runs), [""] * runs
        on_cpu = OmegaConf.select(self.config, "trainer.accelerator") == "cpu"
        if self.gpus_per_run and not on_cpu and (count := torch.cuda.device_count()):
            named = (os.environ.get(CARDS) or ",".join(map(str, range(count)))).split(",")
            cards = named[:count] * int(1 / self.gpus_per_run + 1e-9)
        cards = cards[:limit]
        threads = str(max(1, usable_cores() // len(cards)))
        shared = {name: os.environ.get(name, threads) for name in THREADS}
        return [shared | ({CARDS: card} if card else {}) for card in cards]

    def run_there(
        self, state: Any, number: int, overrides: Sequence[str]
    ) -> tuple[JobReturn, tuple[list[str], int]]:
        """Execute one run in a process of joblib; also return what the sweep prints of it."""
        Singleton.set_state(state)
        return self.run(number, overrides), SweepProgress.last

    def run(self, number: int, overrides: Sequence[str]) -> JobReturn:
        """Execute one run in this process."""
        (returned,) = super().launch([overrides], number)
        # Some configurations cannot be sent between processes, and the sweep does not read them.
        return replace(returned, cfg=None, hydra_cfg=None)


def _record_lost(cfg: DictConfig) -> None:
    """Record the failure of a run whose process died; called in the process of the sweep."""
    from robust_diffusion.experiment.run import record_failure

    number = HydraConfig.get().job.num
    message = "its process was killed or crashed, as for want of memory"
    record_failure(cfg, message, "WorkerError")
    log.error("run %s failed: %s", number, message, extra={"end": f"failed: {message}"})


def _process(environment: dict[str, str]) -> Any:
    """Return an executor of one process."""
    with needs_extra("launchers", "hydra/launcher=cores"):
        from joblib.externals.loky import ProcessPoolExecutor
    return ProcessPoolExecutor(1, env=environment, initializer=_follow, initargs=(os.getpid(),))


def _follow(sweep: int) -> None:
    """End this process when the sweep's process has ended, for whichever reason."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the sweep, which ends this one
    Progress.hidden = True  # only the sweep shows a bar

    def end() -> None:
        while os.getppid() == sweep:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
