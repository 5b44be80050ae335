"""The launcher of `hydra/launcher=cores`; Hydra looks for plugins in this package alone.

Joblib gives up a sweep when one of its processes is killed, and leaves them running when it is
killed itself. Here a killed process fails its own cell, and none outlives the sweep. On the command
line, `hydra/launcher=joblib` is this one.
"""

import logging
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from hydra.core.utils import JobReturn

from robust_diffusion.errors import ConfigError
from robust_diffusion.launch import (
    CARDS,
    GRACE,
    JobLauncher,
    card_places,
    check_share,
    follow,
    run_to_send,
    unpickled,
)

log = logging.getLogger(__name__)

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Settings by which processes side by side share the processors, unless they are set already."""


@dataclass(frozen=True)
class Worker:
    """A process that runs one cell after another, all on the same graphics card if it has one."""

    process: SpawnProcess
    connection: Connection
    card: str | None

    @classmethod
    def start(cls, common: bytes, card: str | None) -> "Worker":
        """A new one; `common` is the pickled job."""
        context = multiprocessing.get_context("spawn")
        own, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, common))
        with _environment({} if card is None else {CARDS: card}):
            process.start()
        theirs.close()  # so that its end is seen here when the process dies
        return cls(process, own, card)

    def end(self, *, idle: bool) -> None:
        """End it: one that is idle does so by itself, another cleans up first."""
        self.connection.close()
        if not idle:
            self.process.terminate()
        self.process.join(GRACE)
        self.process.kill()
        self.process.join()

    def died(self) -> str:
        """Its end, in words."""
        self.process.join()
        code = self.process.exitcode or 0
        if code == -signal.SIGKILL:
            return "its process was killed (SIGKILL), as for want of memory"
        return f"its process ended with {signal.Signals(-code).name if code < 0 else code}"


class ProcessLauncher(JobLauncher):
    """Runs the cells of a sweep side by side, in processes of their own.

    A cell whose process dies is recorded as failed, and the others go on. When this process ends,
    however it does, so do the others.

    Args:
        n_jobs: Cells at a time; -1 for one per processor, -2 for one less, and so on.
        gpus_per_cell: Share of a graphics card that a cell takes, in 0..1, where the sweep trains
            on cards: there are no more cells at a time than they have room for. 0 shares nothing
            out, so that every cell sees all cards.

    Raises:
        ConfigError: `n_jobs` is 0 or no whole number, or the share is out of range.
    """

    def __init__(self, n_jobs: int = -1, gpus_per_cell: float = 1.0) -> None:
        if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0:
            raise ConfigError(f"hydra.launcher.n_jobs={n_jobs}: must be a whole number, and not 0")
        processors = os.cpu_count() or 1
        self.n_jobs = n_jobs if n_jobs > 0 else max(1, processors + 1 + n_jobs)
        self.gpus_per_cell = check_share(gpus_per_cell)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run every cell; their returns are in the order of the overrides."""
        self.job.begin()
        waiting = deque(enumerate(job_overrides, start=initial_job_idx))
        places = deque(self._places(len(waiting)))
        limit = len(places)
        log.info("%d cells, %d at a time", len(waiting), limit)
        common = self.job.pickled()
        idle: list[Worker] = []
        busy: dict[Connection, tuple[Worker, int, Sequence[str]]] = {}
        done: dict[int, JobReturn] = {}
        threads = str(max(1, (os.cpu_count() or 1) // limit))
        try:
            with _environment({name: os.environ.get(name, threads) for name in THREADS}):
                while waiting or busy:
                    while waiting and len(busy) < limit:
                        worker = idle.pop() if idle else Worker.start(common, places.popleft())
                        try:
                            worker.connection.send(waiting[0])
                        except OSError:  # it died while it had nothing to do
                            worker.end(idle=True)
                            places.append(worker.card)
                            continue
                        busy[worker.connection] = (worker, *waiting.popleft())
                    for connection in wait(list(busy)):
                        assert isinstance(connection, Connection)
                        worker, number, overrides = busy.pop(connection)
                        try:
                            done[number] = connection.recv()
                            idle.append(worker)
                        except (EOFError, OSError):
                            places.append(worker.card)
                            done[number] = self.job.lost(number, overrides, worker.died())
        finally:
            for worker, _, _ in busy.values():
                worker.end(idle=False)
            for worker in idle:
                worker.end(idle=True)
        return [done[number] for number in sorted(done)]

    def _places(self, cells: int) -> list[str | None]:
        """Per cell at a time its graphics card, if it has one."""
        limit = min(self.n_jobs, cells)
        cards = [] if self.job.on_cpu else card_places(self.gpus_per_cell)
        return [*cards[:limit]] or [None] * limit


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Environment of the processes that are started in a `with` block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _work(connection: Connection, common: bytes) -> None:
    """Run cells as they come, until there are no more or the sweep is gone."""
    sweep = multiprocessing.parent_process()
    assert sweep is not None
    assert sweep.pid is not None
    follow(sweep.pid)
    try:
        job = unpickled(common)
        with suppress(EOFError):
            while True:
                connection.send(run_to_send(job, *connection.recv()))
    except KeyboardInterrupt:
        sys.exit(1)  # the sweep says so
