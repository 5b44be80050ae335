"""The launchers of `hydra/launcher=local` and `slurm`, with the options of Hydra's own.

Hydra's own gives up a sweep when one of its jobs is killed, and leaves local ones running when it
is killed itself. Here a killed job is run again, and no local one outlives the sweep. On the
command line, `submitit_local` and `submitit_slurm` are these.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.utils import JobReturn
from omegaconf import OmegaConf

from robust_diffusion.launch import JobLauncher, follow, run_to_send, unpickled

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""Times that a cell is run if its job is killed each time."""


@dataclass(frozen=True)
class Cell:
    """Function that submitit calls in a job."""

    common: bytes  # the pickled job
    sweep: int | None  # the process that it must not outlive, on the same machine

    def __call__(self, number: int, overrides: Sequence[str]) -> JobReturn:
        """Run one cell."""
        if self.sweep is not None:
            follow(self.sweep)
        return run_to_send(unpickled(self.common), number, overrides)

    def checkpoint(self, *arguments: Any) -> Any:
        """The same cell, to be queued again when its job is timed out or preempted."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *arguments)


class _SubmititLauncher(JobLauncher):
    """Runs each cell of a sweep as a job; one that is killed is run again, twice at most.

    Args:
        submitit_folder: Folder of submitit's files and of the jobs' output.
        max_num_timeout: Times that a job that is timed out or preempted is queued again.
        params: Of the jobs, see `hydra_plugins.hydra_submitit_launcher.config`.
    """

    cluster: ClassVar[str]

    def __init__(self, submitit_folder: str, max_num_timeout: int = 0, **params: Any) -> None:
        self.folder = submitit_folder
        self.max_num_timeout = max_num_timeout
        self.params = params

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run every cell; their returns are in the order of the overrides."""
        from submitit.core.utils import UncompletedJobError

        self.job.begin()
        executor = self._executor()
        cell = Cell(self.job.pickled(), os.getpid() if self.cluster == "local" else None)
        waiting = dict(enumerate(map(list, job_overrides), start=initial_job_idx))
        done: dict[int, JobReturn] = {}
        log.info("%d cells, each a job; their output is in %s", len(waiting), self.folder)
        for attempt in range(1, ATTEMPTS + 1):
            jobs = executor.map_array(cell, list(waiting), list(waiting.values()))
            for number, job in zip(list(waiting), jobs, strict=True):
                try:
                    done[number] = job.result()
                    del waiting[number]
                except UncompletedJobError:
                    if attempt < ATTEMPTS:
                        log.warning("cell %s: its job %s was killed; again", number, job.job_id)
            if not waiting:
                break
        for number, overrides in waiting.items():
            message = f"its job was killed {ATTEMPTS} times; {self.folder} may say why"
            done[number] = self.job.lost(number, overrides, message)
        return [done[number] for number in sorted(done)]

    def _executor(self) -> Any:
        from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
        from submitit import AutoExecutor

        own = {f"{self.cluster}_max_num_timeout": self.max_num_timeout}
        executor = AutoExecutor(folder=Path(self.folder), cluster=self.cluster, **own)
        common = set(OmegaConf.structured(BaseQueueConf).keys())
        params = {
            key if key in common else f"{self.cluster}_{key}": (
                OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
            )
            for key, value in self.params.items()
        }
        executor.update_parameters(**params)
        return executor


class LocalLauncher(_SubmititLauncher):
    """Runs each cell of a sweep as a job of this machine."""

    cluster = "local"


class SlurmLauncher(_SubmititLauncher):
    """Runs each cell of a sweep as a job of a Slurm cluster, all of one array."""

    cluster = "slurm"
