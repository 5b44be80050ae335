"""What a sweep prints while it runs, beside its table."""

import logging
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from robust_diffusion.experiment import progress

Cli = Callable[..., Any]


@pytest.fixture
def sweep(cli: Cli, tiny_clean: list[str]) -> Callable[..., list[str]]:
    """Lines on standard error of a sweep."""

    def run(*arguments: str) -> list[str]:
        logging.getLogger("robust_diffusion").setLevel(logging.INFO)
        outcome = cli("-m", *arguments, *tiny_clean)
        assert "\r" not in outcome.err
        return [line for line in outcome.err.splitlines() if line]

    return run


def test_a_sweep_prints_a_header_and_a_line_per_run(sweep: Callable[..., list[str]]) -> None:
    header, *lines = sweep("flow=heat,grand", "solver=rk4")
    assert header == "2 runs over flow · synthetic"
    sizes, runs = lines[::2], lines[1::2]
    shapes = [re.sub("[0-9,]+ parameters", "N parameters", line) for line in sizes]
    assert shapes == [f"{n} on synthetic: 3 layers x 8, N parameters" for n in ("heat", "grand")]
    assert [run.split()[:2] for run in runs] == [["[1/2]", "heat"], ["[2/2]", "grand"]]
    assert ["left" in run for run in runs] == [True, False]
    assert all("epochs (best " in run for run in runs)
    (log,) = Path("outputs/multirun").glob("*/1/run.log")
    assert "best validation accuracy" in log.read_text()
    # Of a second sweep, one run is there, which says nothing about the time of the other.
    _, reused, size, computed = sweep("flow=heat", "solver=rk4", "seed=0,1")
    assert size == sizes[0]
    assert reused == "[1/2] seed=0  recorded before"
    assert computed.startswith("[2/2] seed=1")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("joblib") is None, reason="the extra `launchers` is missing")
def test_parallel_runs_are_reported_by_the_process_of_the_sweep(
    sweep: Callable[..., list[str]],
) -> None:
    header, *lines = sweep("seed=0,1,2", "flow=heat", "hydra/launcher=cores")
    size, *runs = sorted(lines, key=lambda line: line.startswith("["))
    assert size.startswith("heat on synthetic: 3 layers x 8, ")
    assert header == "3 runs over seed · synthetic"
    assert sorted(run.split()[0] for run in runs) == ["[1/3]", "[2/3]", "[3/3]"]
    assert ["left" in run for run in runs] == [True, True, False]


def test_a_sweep_without_the_callback_prints_the_log(sweep: Callable[..., list[str]]) -> None:
    lines = sweep("flow=heat", "seed=0", "~hydra.callbacks.progress")
    assert any("best validation accuracy" in line for line in lines)


def test_a_warning_of_several_runs_is_printed_once(
    compose: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compose("flow=heat", f"hydra.sweep.dir={tmp_path}")
    hydra = HydraConfig.instance().cfg
    config = OmegaConf.merge(hydra, {"paths": {"records": str(tmp_path / "records")}})
    assert isinstance(config, DictConfig)
    with progress.reporting(config, [["seed=0"], ["seed=1"]]):
        progress.report(["  ⚠ same", "[1/2] seed=0"], 1)
        progress.report(["  ⚠ same", "[2/2] seed=1"], 0)
    lines = list(filter(None, capsys.readouterr().err.splitlines()))
    assert lines == ["  ⚠ same", "[1/2] seed=0", "[2/2] seed=1"]
