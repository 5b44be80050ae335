"""The launcher of `hydra/launcher=processes`; Hydra looks for plugins in this package alone.

Joblib itself gives up a sweep when one of its processes is killed, and leaves them running when it
is killed itself. Here a killed process fails its own cell, and none outlives the sweep. On the
command line, `hydra/launcher=joblib` is this one.
"""

import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, configure_log, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from robust_diffusion.errors import ConfigError
from robust_diffusion.interrupts import end_on_sigterm

log = logging.getLogger(__name__)

GRACE = 10.0
"""Seconds to clean up, from SIGTERM to SIGKILL."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Settings by which processes side by side share the processors, unless they are set already."""


@dataclass(frozen=True)
class Job:
    """What all cells of a sweep have in common."""

    hydra_context: HydraContext
    config: DictConfig
    task_function: TaskFunction

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


@dataclass(frozen=True)
class Worker:
    """A process that runs one cell after another."""

    process: SpawnProcess
    connection: Connection

    @classmethod
    def start(cls, common: bytes) -> "Worker":
        """A new one; `common` is the pickled job, and Hydra's state."""
        context = multiprocessing.get_context("spawn")
        own, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, common))
        process.start()
        theirs.close()  # so that its end is seen here when the process dies
        return cls(process, own)

    def end(self, *, idle: bool) -> None:
        """End it: one that is idle does so by itself, another cleans up first."""
        self.connection.close()
        if not idle:
            self.process.terminate()
        self.process.join(GRACE)
        self.process.kill()
        self.process.join()

    def died(self) -> str:
        """What became of it, in words."""
        self.process.join()
        code = self.process.exitcode or 0
        if code == -signal.SIGKILL:
            return "its process was killed (SIGKILL), as for want of memory"
        return f"its process ended with {signal.Signals(-code).name if code < 0 else code}"


class ProcessLauncher(Launcher):
    """Runs the cells of a sweep side by side, in processes of their own.

    A cell whose process dies is recorded as failed, and the others go on. When this process ends,
    however it does, so do the others.

    Args:
        n_jobs: Cells at a time; -1 for one per processor, -2 for one less, and so on.

    Raises:
        ConfigError: `n_jobs` is 0 or no whole number.
    """

    def __init__(self, n_jobs: int = -1) -> None:
        if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0:
            raise ConfigError(f"hydra.launcher.n_jobs={n_jobs}: must be a whole number, and not 0")
        processors = os.cpu_count() or 1
        self.n_jobs = n_jobs if n_jobs > 0 else max(1, processors + 1 + n_jobs)
        self.job: Job | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take what Hydra hands to a launcher."""
        self.job = Job(hydra_context, config, task_function)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run every cell; their returns are in the order of the overrides."""
        assert self.job is not None
        setup_globals()
        configure_log(self.job.config.hydra.hydra_logging, self.job.config.hydra.verbose)
        Path(str(self.job.config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        waiting = deque(enumerate(job_overrides, start=initial_job_idx))
        limit = min(self.n_jobs, len(waiting))
        log.info("%d cells, %d at a time", len(waiting), limit)
        common = _pickled((self.job, Singleton.get_state()))
        idle: list[Worker] = []
        busy: dict[Connection, tuple[Worker, int, Sequence[str]]] = {}
        done: dict[int, JobReturn] = {}
        try:
            with _shared_processors(limit):
                while waiting or busy:
                    while waiting and len(busy) < limit:
                        worker = idle.pop() if idle else Worker.start(common)
                        try:
                            worker.connection.send(waiting[0])
                        except OSError:  # it died while it had nothing to do
                            worker.end(idle=True)
                            continue
                        busy[worker.connection] = (worker, *waiting.popleft())
                    for connection in wait(list(busy)):
                        assert isinstance(connection, Connection)
                        worker, number, overrides = busy.pop(connection)
                        try:
                            done[number] = connection.recv()
                            idle.append(worker)
                        except (EOFError, OSError):
                            done[number] = self._failed(number, overrides, worker.died())
        finally:
            for worker, _, _ in busy.values():
                worker.end(idle=False)
            for worker in idle:
                worker.end(idle=True)
        return [done[number] for number in sorted(done)]

    def _failed(self, number: int, overrides: Sequence[str], message: str) -> JobReturn:
        """Record, here, the failure of a cell whose process is no more."""
        from robust_diffusion.experiment import record_failure

        assert self.job is not None

        def record(cfg: DictConfig) -> None:
            record_failure(cfg, message, "WorkerError")
            log.error("cell %s failed: %s", number, message)

        job = Job(self.job.hydra_context, self.job.config, record)
        returned = job.run(number, overrides)
        configure_log(self.job.config.hydra.hydra_logging, self.job.config.hydra.verbose)
        return returned


def _pickled(job: Any) -> bytes:
    try:
        import cloudpickle
    except ImportError as error:
        raise ConfigError(
            "hydra/launcher=processes: cloudpickle is not there; pip install "
            "'robust-diffusion[launchers]'"
        ) from error
    # The function under @hydra.main is not to be found by its name.
    pickled: bytes = cloudpickle.dumps(job)
    return pickled


@contextmanager
def _shared_processors(processes: int) -> Iterator[None]:
    """Environment of processes that share the processors."""
    added = [name for name in THREADS if name not in os.environ]
    os.environ |= dict.fromkeys(added, str(max(1, (os.cpu_count() or 1) // processes)))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _work(connection: Connection, common: bytes) -> None:
    """Run cells as they come, until there are no more or the sweep is gone."""
    end_on_sigterm()
    threading.Thread(target=_end_with_the_sweep, daemon=True).start()
    try:
        setup_globals()
        job, state = pickle.loads(common)  # noqa: S301 - from the process that started this one
        Singleton.set_state(state)
        with suppress(EOFError):
            while True:
                returned = job.run(*connection.recv())
                # Configurations do not all travel, and nobody at the other end reads them.
                connection.send(replace(returned, cfg=None, hydra_cfg=None))
    except KeyboardInterrupt:
        sys.exit(1)  # the sweep says so


def _end_with_the_sweep() -> None:
    sweep = multiprocessing.parent_process()
    assert sweep is not None
    wait([sweep.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)
