"""What a sweep prints while it runs, beside its table."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from robust_diffusion.experiment import progress
from robust_diffusion.experiment.overrides import compose_all
from robust_diffusion.records import append_record
from tests.paper.records import finished

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
    first, second, *lines = sweep("flow=heat,grand", "solver=rk4")
    assert first.startswith("2 runs over flow · ")
    assert '"easy" test nodes (lowest degree) · seed 0' in first
    assert second == "rk4, 2 steps"
    shared, *runs = lines
    assert shared.startswith("shared  dataset")
    assert [run.split()[:2] for run in runs] == [["[1/2]", "heat"], ["[2/2]", "grand"]]
    assert ["left" in run for run in runs] == [True, False]
    assert all("epochs (best " in run for run in runs)
    (log,) = Path("outputs/multirun").glob("*/1/run.log")
    assert "best validation accuracy" in log.read_text()
    # Of a second sweep, one run is there, and the expected time is that of the other.
    header, *_, reused, _, computed = sweep("flow=heat", "solver=rk4", "seed=0,1")
    assert "on 1 core" in header
    assert reused == "[1/2] seed=0  recorded before"
    assert computed.startswith("[2/2] seed=1")


def test_a_sweep_without_the_callback_prints_the_log(sweep: Callable[..., list[str]]) -> None:
    lines = sweep("flow=heat", "seed=0", "~hydra.callbacks.progress")
    assert any("best validation accuracy" in line for line in lines)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("dataset", "actor", '1 run · actor · "full" test nodes · seed 0 | black_box via gcn'),
        ("dataset", "mine", "1 run · mine · seed 0"),
        ("dataset", "synthetic", '"easy" test nodes (lowest degree)'),
        ("difficulty", "full", '1 run · synthetic · "full" test nodes · seed 0'),
        ("threat", "white_box", "| white_box · speit"),
        ("threat", "black_box", "| black_box via gcn · speit"),
    ],
)
def test_a_header_says_nothing_of_options_that_no_run_has(key: str, value: str, told: str) -> None:
    plan = {"swept": [], "count": 1}
    header = progress._header(compose_all([]), [{key: value}], plan, "")
    assert told in header.replace("\n", " | ")


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> DictConfig:
    monkeypatch.setattr(progress, "cpu_name", lambda: "here")
    choices = {"dataset": "cora", "model": "graph_pde", "flow": "heat"}
    choices |= {"solver": "implicit_adams", "threat": "black_box", "fidelity": "paper"}
    return OmegaConf.create(
        {
            "hydra": {"launcher": {"_target_": "BasicLauncher"}, "runtime": {"choices": choices}},
            "paths": {"records": "records.jsonl"},
            "trainer": {"accelerator": "cpu"},
            "training": {"max_epochs": 5000},
        }
    )


def test_a_run_without_a_number_of_epochs_is_an_estimate(config: DictConfig) -> None:
    run = finished(flow="heat", processor="here", seconds={"train": 12})
    del run["config"]["training"]["max_epochs"]
    append_record("records.jsonl", run)
    assert progress.expected_seconds(config, [{"seed": "7"}]) == ([12], 1)


def test_the_expected_time_is_that_of_the_most_similar_records(config: DictConfig) -> None:
    def record(seed: int, train: int, *reused: str, place: str = "here", **typed: str) -> None:
        named = {"flow": "heat", "seed": seed, "overrides": typed, "reused": reused}
        seconds = {"train": train, "speit": 5, "test": 1}
        append_record("records.jsonl", finished(**named, seconds=seconds, processor=place))

    record(0, 10)
    record(1, 20, "speit")
    record(0, 300, "victim", threat="white_box")
    record(0, 1000, place="elsewhere")
    record(0, 7, difficulty="margin:low")
    again = progress._by_key(["seed=0", "difficulty=margin\\:low"])
    assert progress.expected_seconds(config, [again])[0] == [0]
    runs = [{"seed": "0"}, {"seed": "2"}, {"seed": "2", "threat": "white_box"}, {"flow": "grand"}]
    assert progress.expected_seconds(config, runs) == ([0, (16 + 21) / 2, 6, None], 1)
