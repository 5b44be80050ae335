"""What a sweep prints while it runs, beside its table."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


def test_a_sweep_prints_a_header_shared_work_once_and_a_line_per_run(
    sweep: Callable[..., list[str]],
) -> None:
    first, second, *lines = sweep("flow=heat,grand", "solver=euler,rk4")
    assert first.startswith("4 runs over flow × solver · ")
    assert '"easy" test nodes (lowest degree) · seed 0' in first
    assert second == "euler, rk4"
    shared, *runs = lines
    assert shared.startswith("shared  dataset")
    starts = [f"[{i}/4] {flow} {solver}" for i, (flow, solver) in enumerate(RUNS, 1)]
    assert [run.startswith(start) for run, start in zip(runs, starts, strict=True)] == [True] * 4
    assert ["left" in run for run in runs] == [True, True, True, False]
    assert all("epochs (best " in run for run in runs)
    (log,) = Path("outputs/multirun").glob("*/3/run.log")
    assert "best validation accuracy" in log.read_text()


RUNS = [("heat", "euler"), ("heat", "rk4"), ("grand", "euler"), ("grand", "rk4")]


def test_reused_runs_say_so_and_the_expected_time_is_that_of_the_others(
    sweep: Callable[..., list[str]],
) -> None:
    sweep("flow=heat", "seed=0")
    header, *_, reused, _, computed = sweep("flow=heat", "seed=0,1")
    assert "on 1 core" in header
    assert reused == "[1/2] seed=0  recorded before"
    assert computed.startswith("[2/2] seed=1")


def test_a_sweep_without_the_callback_prints_the_log(sweep: Callable[..., list[str]]) -> None:
    lines = sweep("flow=heat", "seed=0", "~hydra.callbacks.progress")
    assert any("best validation accuracy" in line for line in lines)
