"""Presets of `hydra/launcher`, runs whose process is lost, and clusters that are gone."""

import importlib.util
import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.utils import get_class
from omegaconf import OmegaConf

from hydra_plugins.robust_diffusion_launcher import ProcessLauncher
from hydra_plugins.robust_diffusion_sweeper import GridSweeper
from robust_diffusion.errors import TrainingError
from tests.graphs import without_type_checks

Cli = Callable[..., Any]
NEEDED = {
    "cores": ("joblib", "launchers", {"n_jobs": -1, "gpus_per_run": 1}),
    "local": ("hydra_submitit_launcher", "slurm", {"timeout_min": 240}),
    "ray": ("hydra_ray_launcher", "ray", {"ray.remote.num_cpus": 3, "ray.init.address": None}),
    "slurm": ("hydra_submitit_launcher", "slurm", {"cpus_per_task": 3, "mem_gb": 8}),
}
"""Per preset the module that it needs, the extra that brings it, and some of its options."""


@pytest.mark.parametrize(
    "case",
    [
        (1, None, "auto", ["0", "1"]),
        (0.5, None, "auto", ["0", "1", "0"]),
        (1 / 3, "5,7", "auto", ["5", "7", "5"]),
        (0.6, "5,7", "gpu", ["5", "7"]),
        (0, None, "auto", [None] * 3),
        (1, None, "cpu", [None] * 3),
    ],
)
def test_there_are_as_many_runs_at_a_time_as_cards_have_room_for(
    monkeypatch: pytest.MonkeyPatch, case: tuple[float, str | None, str, list[str | None]]
) -> None:
    share, visible, accelerator, cards = case
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    config = OmegaConf.create({"trainer": {"accelerator": accelerator}})
    own = ProcessLauncher(n_jobs=3, gpus_per_run=share)
    with without_type_checks():
        own.setup(hydra_context=None, task_function=print, config=config)  # type: ignore[arg-type]
    assert [place.get("CUDA_VISIBLE_DEVICES") for place in own.places(5)] == cards
    assert len(own.places(1)) == 1
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == visible


def test_runs_share_the_cores_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    own = ProcessLauncher(n_jobs=-1, gpus_per_run=0)
    own.config = OmegaConf.create()
    assert own.n_jobs == 4
    assert [place["OMP_NUM_THREADS"] for place in own.places(2)] == ["2", "2"]


def test_a_lost_process_is_one_failed_run_and_a_new_one_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, stopped = [], []

    class Process:
        def __init__(self, environment: dict[str, str]) -> None:
            started.append(environment)

        def submit(self, _: Any, __: Any, number: int, ___: list[str]) -> Future[Any]:
            ended: Future[Any] = Future()
            if number == 4:
                ended.set_exception(BrokenExecutor())
            else:
                ended.set_result((f"ran {number}", ([], 0)))
            return ended

        def shutdown(self, *, kill_workers: bool) -> None:
            stopped.append(kill_workers)

    def launch(self: Any, overrides: list[list[str]], first: int) -> list[JobReturn]:
        return [JobReturn(task_name=f"{self.task_function.__name__} {first}") for _ in overrides]

    # Not by the modules' names, since Hydra may have loaded both a second time.
    monkeypatch.setitem(ProcessLauncher.launch.__globals__, "_process", Process)
    monkeypatch.setattr(ProcessLauncher.__base__, "launch", launch)
    launcher = ProcessLauncher(n_jobs=2, gpus_per_run=0)
    launcher.config = OmegaConf.create({})
    first, lost, *rest = launcher.launch([["seed=0"], ["seed=1"], ["seed=2"], ["seed=3"]], 3)
    assert [first, lost.task_name, *rest] == ["ran 3", "_record_lost 4", "ran 5", "ran 6"]
    assert (len(started), stopped) == (3, [False, False])


def test_a_cluster_that_is_gone_is_named_with_what_to_do() -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise ConnectionError("no head node")

    sweeper = GridSweeper({}, [])
    choices = {"runtime": {"choices": {"experiment": "none"}}, "callbacks": {}}
    hydra = {"sweep": {"dir": "."}, **choices}
    sweeper.config = OmegaConf.create({"hydra": hydra, "paths": {"records": "records"}})
    sweeper.launcher = SimpleNamespace(launch=gone)
    with pytest.raises(TrainingError, match=r"hydra/launcher.*no head node.*again"):
        sweeper.launch([["seed=0"]])


def test_slurm_without_a_cluster_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", "")
    outcome = cli("-m", "seed=0,1", "hydra/launcher=slurm", "threads=1")
    assert "hydra/launcher=slurm: srun not found" in outcome.error


@pytest.mark.parametrize("preset", NEEDED)
def test_a_preset_is_a_launcher_or_names_its_extra(cli: Cli, compose: Any, preset: str) -> None:
    module, extra, expected = NEEDED[preset]
    if not any(map(importlib.util.find_spec, (module, f"hydra_plugins.{module}"))):
        error = cli("-m", "seed=0,1", f"hydra/launcher={preset}").error
        assert error.endswith(f"pip install 'robust-diffusion[{extra}]'")
        return
    compose(f"hydra/launcher={preset}", "threads=3")
    cfg = HydraConfig.get().launcher
    assert get_class(cfg._target_)
    assert expected == {key: OmegaConf.select(cfg, key) for key in expected}
    for option in ("n_jobs=0", "gpus_per_run=2") if preset == "cores" else ():
        outcome = cli("-m", "seed=0,1", "hydra/launcher=cores", f"hydra.launcher.{option}")
        assert f"hydra.launcher.{option}: must be" in outcome.error
