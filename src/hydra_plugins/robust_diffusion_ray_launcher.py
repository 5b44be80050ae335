"""The launcher of `hydra/launcher=ray`."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn

from robust_diffusion.checks import check_whole
from robust_diffusion.errors import ConfigError
from robust_diffusion.launch import JobLauncher, check_share, run_to_send, unpickled

log = logging.getLogger(__name__)

TRAVEL = ("ROBUST_DIFFUSION_", "PYTHONPATH", "OMP_", "MKL_", "OPENBLAS_", "ATEN_", "HYDRA_")
"""Beginnings of the environment variables that a cell reads, on whichever machine it runs."""


class RayLauncher(JobLauncher):
    """Runs the cells of a sweep as tasks of a Ray cluster.

    A cell whose process dies is run again; one that keeps dying is recorded as failed, and the
    others go on.

    Args:
        address: Of a cluster, such as `auto` or `10.0.0.1:6379`; `None` for that of `RAY_ADDRESS`
            or of this machine, and if there is none, for a local one that ends with the sweep.
        cpus_per_cell: Processors that a cell takes, at least 1.
        gpus_per_cell: Share of a graphics card that a cell takes, in 0..1, where the cluster has
            cards and the sweep trains on them.
        retries: Times that a cell is run again if its process dies, at least 0.

    Raises:
        ConfigError: A value out of range.
    """

    def __init__(
        self,
        address: str | None = None,
        cpus_per_cell: int = 1,
        gpus_per_cell: float = 1.0,
        retries: int = 2,
    ) -> None:
        self.address = address
        self.cpus_per_cell = check_whole("hydra.launcher.cpus_per_cell", cpus_per_cell, at_least=1)
        self.gpus_per_cell = check_share(gpus_per_cell)
        self.retries = check_whole("hydra.launcher.retries", retries, at_least=0)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run every cell; their returns are in the order of the overrides."""
        ray = _ray()
        self.job.begin()
        self._connect(ray)
        try:
            on_cards = not self.job.on_cpu and "GPU" in ray.cluster_resources()
            task = ray.remote(
                num_cpus=self.cpus_per_cell,
                num_gpus=self.gpus_per_cell if on_cards else 0,
                max_retries=self.retries,
            )(cell)
            log.info(
                "%d cells on %d processors", len(job_overrides), ray.cluster_resources()["CPU"]
            )
            common = ray.put(self.job.pickled())
            cells = list(enumerate(map(list, job_overrides), start=initial_job_idx))
            started = [task.remote(common, str(Path.cwd()), *own) for own in cells]
            return [self._returned(ray, of, *own) for of, own in zip(started, cells, strict=True)]
        finally:
            ray.shutdown()

    def _connect(self, ray: Any) -> None:
        environment = {name: value for name, value in os.environ.items() if name.startswith(TRAVEL)}
        try:
            ray.init(
                self.address,
                include_dashboard=False,
                logging_level=logging.ERROR,
                runtime_env={"env_vars": environment},
            )
        except ConnectionError as error:
            raise ConfigError(
                f"hydra.launcher.address={self.address}: no Ray cluster is there; start one "
                "by `ray start --head`, or leave it out"
            ) from error

    def _returned(self, ray: Any, of: Any, number: int, overrides: Sequence[str]) -> JobReturn:
        try:
            returned: JobReturn = ray.get(of)
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError as error:
            said = (str(error).splitlines() or [type(error).__name__])[0]
            message = f"its process died {self.retries + 1} times ({said})"
            return self.job.lost(number, overrides, message)
        return returned


def cell(common: bytes, directory: str, number: int, overrides: Sequence[str]) -> JobReturn:
    """Run one cell, in a process of Ray's."""
    os.chdir(directory)
    return run_to_send(unpickled(common), number, overrides)


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # tells nobody of a sweep
    # Without cards of its own a cell sees those of its machine, as elsewhere.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        remedy = "pip install 'robust-diffusion[ray]'"
        raise ConfigError(f"hydra/launcher=ray: Ray is not there; {remedy}") from error
    return ray
