import builtins
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from glob import glob
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import wandb
from pytorch_lightning.loggers import WandbLogger

from robust_diffusion.errors import ConfigError
from robust_diffusion.experiment import wandb_log
from robust_diffusion.experiment.loggers import BestEpochLogger
from robust_diffusion.experiment.wandb_log import (
    close_run,
    group_of,
    log_record,
    log_table,
    results,
    run_name,
    settings,
    where_logged,
)
from robust_diffusion.records.records import Asked, Sweep
from tests.graphs import without_type_checks
from tests.paper.records import finished

FAKE_KEY = "0123456789" * 4
NOBODY_LISTENS = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No key in the environment or at home, and nobody to answer a question."""

    def ask(*_: Any) -> str:
        raise AssertionError("asked a question")

    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(builtins, "input", ask)
    yield
    if wandb.run is not None:
        wandb.run.finish()


def open_run(tmp_path: Path, **options: Any) -> WandbLogger:
    record = finished(run="c311")
    given = {"project": "p", "record": record, "directory": str(tmp_path / "run")}
    return BestEpochLogger(**given, **options)


@pytest.mark.parametrize("has_key", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_without_a_key_or_a_server_the_run_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, has_key: bool
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("reached out to the network")

    if has_key:
        monkeypatch.setenv("WANDB_API_KEY", FAKE_KEY)
        monkeypatch.setenv("WANDB_BASE_URL", NOBODY_LISTENS)
    else:
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
    start = time.perf_counter()
    logger = open_run(tmp_path, init_timeout=5)
    logger.log_metrics({"loss": 1.0})
    logger.experiment.finish()
    assert time.perf_counter() - start < 25
    told = [record for record in caplog.records if "logger=wandb" in record.getMessage()]
    assert len(told) == has_key  # offline by choice is no failure
    assert len(list(tmp_path.glob("run/**/wandb/offline-run-*/*.wandb"))) == 1


def test_names_longer_than_wandbs_limits_are_logged(tmp_path: Path) -> None:
    name = "a" * 90
    files = {f"{name}/{name}": "graph-1.safetensors", name: "graph-2.safetensors"}
    for file in files.values():
        (tmp_path / file).write_bytes(file.encode())
    record = finished(run="c312", dataset=name) | {"files": files}
    place = {"project": "p", "directory": str(tmp_path), "mode": "offline"}
    with wandb_log.open_run(record=record, finished=True, **place) as run:
        log_record(run, record, tmp_path)
    assert name[:64] in run.tags


def test_a_logged_table_keeps_its_numbers(tmp_path: Path) -> None:
    table = pd.DataFrame({"row": ["a", None], "mean": [50.5, float("nan")], "seeds": [2, 3]})
    log_table(table, sweep="t", project="p", directory=str(tmp_path), mode="offline")
    (path,) = tmp_path.rglob("*.table.json")
    assert json.loads(path.read_text())["data"][0] == ["a", 50.5, 2]


@pytest.mark.parametrize(
    ("key", "value"),
    [("tags", "abc"), ("tags", [2026]), ("init_timeout", "x"), ("init_timeout", 0), ("name", 3)],
)
def test_a_setting_that_cannot_be_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=rf"^logger\.wandb\.{key}="):
        open_run(tmp_path, **{key: value})


@pytest.mark.parametrize(
    ("overrides", "swept", "varied"),
    [
        ({}, [], "cora beltrami seed=0"),
        ({"training.max_epochs": "80"}, [], "cora beltrami seed=0"),
        ({"flow": "beltrami", "flow.rate": "0.5"}, ["flow", "flow.rate"], "beltrami flow.rate=0.5"),
        ({"threat": "white_box", "seed": "0"}, ["threat", "seed"], "threat=white_box seed=0"),
    ],
)
def test_a_run_is_named_by_what_its_sweep_varies(
    overrides: dict[str, str], swept: list[str], varied: str
) -> None:
    assert run_name(finished(overrides=overrides), swept) == varied


def sweep_at(time: str, **overrides: Any) -> Sweep:
    runs = [Asked(job=job, overrides={"flow": f, **overrides}) for job, f in enumerate("ab")]
    return Sweep(sweep=time, experiment="none", scale="full", time=time, runs=runs)


def test_a_run_belongs_to_its_experiment_or_to_its_sweep_however_often_that_is_taken_up() -> None:
    first, again = sweep_at("one"), sweep_at("two")
    assert group_of("table-3", first) == "table-3"
    assert group_of("none", first) == group_of("none", again)
    assert str(group_of("none", first)).startswith("flow ")
    assert group_of("none", first) != group_of("none", sweep_at("one", seed="1"))
    assert group_of("none", None) is None


@pytest.mark.parametrize(
    ("failure", "marks"),
    [(None, []), (ValueError, ["failed"]), (KeyboardInterrupt, ["interrupted"])],
)
def test_a_run_that_does_not_end_well_is_marked(
    failure: type[BaseException] | None, marks: list[str]
) -> None:
    codes: list[int] = []
    run = SimpleNamespace(tags=("cora",), finish=lambda exit_code: codes.append(exit_code))
    with suppress(BaseException), ExitStack() as stack:
        stack.push(partial(close_run, run))
        if failure:
            raise failure
    assert list(run.tags) == ["cora", *marks]
    assert codes == [int(bool(marks))]


def test_results_have_one_name_each_and_are_not_in_the_configuration() -> None:
    accuracy = {"clean": 0.75, "speit": 0.5, "tdgia": 0.6}
    changes = {
        "mean_accuracy": accuracy | {"speit": 0.55},
        "overrides": {"attack": "[speit,tdgia]"},
    }
    attacked = {"victim": accuracy, "gcn": {"clean": 0.8, "speit": 0.1, "tdgia": 0.2}}
    record = finished(attacked={"speit": 0.5, "tdgia": 0.6}, epochs=7) | changes
    record |= {"attacked": attacked}
    summary, config = results(record), settings(record)
    assert {key: summary[f"accuracy/{key}"] for key in accuracy} == accuracy
    assert [summary[key] for key in ("mean_accuracy/speit", "attacked/gcn/clean")] == [0.55, 0.8]
    assert not {"mean_accuracy/clean", "attacked/victim/clean"} & {*summary}
    assert config["run"]["attack"] == "[speit,tdgia]"
    used = {"feature_range": (-1.0, 0.5), "injected_nodes": 3}
    less = {"feature_range": [-0.5, 0.75], "injected_nodes": 2}
    none = {"feature_range": None, "injected_nodes": 0}
    record |= {"spent": {"speit": {"gcn": less, "gat": used}, "dice": {"gcn": none}}}
    summary |= (spent := results(record))
    assert spent["spent/speit/feature_range"] == [-1.0, 0.75]
    assert (spent["spent/speit/injected_nodes"], spent["spent/dice/injected_nodes"]) == (3, 0)
    assert "spent/dice/feature_range" not in spent
    named = {key.partition("/")[0] for key in summary} - {"budget"}
    assert not named & {*config, *config["run"]}


def test_the_line_on_offline_runs_names_a_sweeps_table_and_its_runs(tmp_path: Path) -> None:
    for folder in ("wandb/offline-run-a", "0/wandb/offline-run-b", "1/wandb/offline-run-c"):
        (tmp_path / folder).mkdir(parents=True)
    line = where_logged("p", "offline", tmp_path)
    patterns = re.findall(r"\S*offline-run-\*", line)
    assert len(patterns) == 2
    assert sum(len(glob(pattern)) for pattern in patterns) == 3  # noqa: PTH207 - leads upwards
