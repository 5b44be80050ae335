"""Presets of `hydra/launcher`."""

import importlib.util
import multiprocessing
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.utils import JobReturn
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf

from hydra_plugins import robust_diffusion_ray_launcher
from hydra_plugins.robust_diffusion_launcher import ProcessLauncher, Worker
from hydra_plugins.robust_diffusion_submitit_launcher import LocalLauncher
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.launch import card_places
from robust_diffusion.run import LAUNCHERS, _as_override
from tests.graphs import without_type_checks

Cli = Callable[..., Any]
PLUGINS = {
    "cores": ("cloudpickle", "launchers"),
    "local": ("hydra_plugins.hydra_submitit_launcher", "slurm"),
    "ray": ("ray", "ray"),
    "slurm": ("hydra_plugins.hydra_submitit_launcher", "slurm"),
}
"""Per preset the module that it needs, and the extra that brings it."""
PRESETS = sorted(path.stem for path in (CONFIG_DIR / "hydra" / "launcher").glob("*.yaml"))


def launcher(*overrides: str) -> DictConfig:
    GlobalHydra.instance().clear()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONFIG_DIR)):
        cfg = compose("config", overrides=list(overrides), return_hydra_config=True)
    return cfg.hydra.launcher


def installed(preset: str) -> bool:
    return importlib.util.find_spec(PLUGINS[preset][0]) is not None


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_says_what_it_needs(preset: str) -> None:
    text = (CONFIG_DIR / "hydra" / "launcher" / f"{preset}.yaml").read_text()
    comment = text.partition("defaults:")[0].partition("_target_")[0]
    assert f"Needs the extra `{PLUGINS[preset][1]}`" in " ".join(comment.split("\n# "))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_a_launcher_of_this_project(preset: str) -> None:
    if not installed(preset):
        pytest.skip(f"the extra `{PLUGINS[preset][1]}` is missing")
    cfg = launcher(f"hydra/launcher={preset}", "threads=3")
    assert get_class(cfg._target_).__module__.startswith("hydra_plugins.robust_diffusion_")
    expected = {
        "cores": {"n_jobs": -1, "gpus_per_cell": 1},
        "slurm": {"cpus_per_task": 3, "mem_gb": 8},
        "local": {"timeout_min": 240},
        "ray": {"address": None, "cpus_per_cell": 3, "gpus_per_cell": 1},
    }
    assert expected[preset].items() <= cfg.items()


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_without_its_plugin_names_the_extra(
    cli: Cli, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, extra = PLUGINS[preset]
    if module.startswith("hydra_plugins"):
        if installed(preset):
            pytest.skip("its plugin is installed")
    else:
        monkeypatch.setitem(sys.modules, module, None)
    outcome = cli("-m", "seed=0,1", f"hydra/launcher={preset}")
    assert outcome.status == 1
    assert outcome.error.endswith(f"pip install 'robust-diffusion[{extra}]'")


@pytest.mark.parametrize(
    ("launcher", "option"),
    [
        ("cores", "n_jobs=0"),
        ("cores", "gpus_per_cell=2"),
        ("ray", "gpus_per_cell=-1"),
        ("ray", "cpus_per_cell=0"),
        ("ray", "retries=x"),
    ],
)
def test_an_option_out_of_range_is_one_line(cli: Cli, launcher: str, option: str) -> None:
    outcome = cli("-m", "seed=0,1", f"hydra/launcher={launcher}", f"hydra.launcher.{option}")
    assert outcome.status == 1
    assert f"hydra.launcher.{option}: must be" in outcome.error


@pytest.mark.parametrize(("launcher", "own"), sorted(LAUNCHERS.items()))
def test_launchers_of_hydra_are_known_by_their_names(launcher: str, own: str) -> None:
    # Hydra's own give up a sweep when one of its cells is killed.
    assert own in PRESETS
    assert _as_override(f"hydra/launcher={launcher}") == f"hydra/launcher={own}"


@pytest.mark.parametrize(
    ("share", "visible", "places"),
    [
        (1, None, ["0", "1"]),
        (0.5, None, ["0", "1", "0", "1"]),
        (1 / 3, "5,7", ["5", "7"] * 3),
        (0.6, "5,7", ["5", "7"]),
        (0, None, []),
    ],
)
def test_cells_share_graphics_cards(
    monkeypatch: pytest.MonkeyPatch, share: float, visible: str | None, places: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert card_places(share) == places


@pytest.mark.parametrize(
    ("accelerator", "places"), [("auto", ["0", "1"]), ("cpu", [None, None, None])]
)
def test_there_are_as_many_cells_at_a_time_as_cards_have_room_for(
    monkeypatch: pytest.MonkeyPatch, accelerator: str, places: list[str | None]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    config = OmegaConf.create({"trainer": {"accelerator": accelerator}})
    own = ProcessLauncher(n_jobs=3)
    with without_type_checks():
        own.setup(hydra_context=None, task_function=print, config=config)  # type: ignore[arg-type]
    assert own._places(5) == places
    assert own._places(1) == places[:1]


def test_a_process_sees_its_own_card_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    class Process:
        def start(self) -> None:
            seen.append(os.environ.get("CUDA_VISIBLE_DEVICES"))

    spawn = multiprocessing.get_context("spawn")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(type(spawn), "Process", lambda *_, **__: Process())
    for card in ("1", None):
        with without_type_checks():
            Worker.start(b"", card).connection.close()
    assert seen == ["1", None]
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


class LostCells:
    """A sweep's job that takes note of the cells that are lost."""

    on_cpu = False

    def __init__(self) -> None:
        self.messages: dict[int, str] = {}

    def begin(self) -> None:
        pass

    def pickled(self) -> bytes:
        return b""

    def lost(self, number: int, overrides: list[str], message: str) -> JobReturn:
        self.messages[number] = message
        return JobReturn(overrides=overrides)


@pytest.mark.faults
def test_a_job_that_is_killed_each_time_is_recorded_as_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("submitit")
    from submitit.core.utils import UncompletedJobError

    submitted: list[list[int]] = []

    def killed() -> None:
        raise UncompletedJobError("no output")

    def map_array(cell: object, numbers: list[int], overrides: list[list[str]]) -> list[Any]:
        submitted.append(numbers)
        jobs = {number: SimpleNamespace(job_id="1_0", result=killed) for number in numbers}
        if 4 in jobs:
            jobs[4].result = JobReturn
        return list(jobs.values())

    own = LocalLauncher(submitit_folder="jobs")
    own.job = job = LostCells()  # type: ignore[assignment]
    monkeypatch.setattr(own, "_executor", lambda: SimpleNamespace(map_array=map_array))
    returned = own.launch([["seed=0"], ["seed=1"]], 3)
    assert submitted == [[3, 4], [3], [3]]
    assert job.messages == {3: "its job was killed 3 times; jobs may say why"}
    assert [of.overrides for of in returned] == [["seed=0"], None]


@pytest.mark.faults
def test_a_task_that_dies_each_time_is_recorded_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class DiedError(Exception):
        pass

    def get(number: int) -> JobReturn:
        if number == 0:
            raise DiedError("the worker died\nmore lines")
        return JobReturn()

    def remote(**options: Any) -> Any:
        given.update(options)
        return lambda _: SimpleNamespace(remote=lambda common, folder, number, overrides: number)

    ray = SimpleNamespace(
        init=lambda *_, **__: None,
        shutdown=lambda: None,
        put=lambda _: None,
        get=get,
        remote=remote,
        cluster_resources=lambda: {"CPU": 4.0, "GPU": 2.0},
        exceptions=SimpleNamespace(RayTaskError=ZeroDivisionError, RayError=DiedError),
    )
    monkeypatch.setattr(robust_diffusion_ray_launcher, "_ray", lambda: ray)
    own = robust_diffusion_ray_launcher.RayLauncher(cpus_per_cell=3, gpus_per_cell=0.5)
    own.job = job = LostCells()  # type: ignore[assignment]
    returned = own.launch([["seed=0"], ["seed=1"]], 0)
    assert job.messages == {0: "its process died 3 times (the worker died)"}
    assert [of.overrides for of in returned] == [["seed=0"], None]
    assert given == {"num_cpus": 3, "num_gpus": 0.5, "max_retries": 2}
