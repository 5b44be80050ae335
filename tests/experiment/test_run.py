import json
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from torch import nn

from robust_diffusion.errors import ConfigError
from robust_diffusion.experiment import run as running
from robust_diffusion.experiment import timing
from robust_diffusion.experiment.run import record_failure, run_and_record, run_experiment
from robust_diffusion.experiment.timing import StepTiming, TimingResult, time_step
from robust_diffusion.models import GAT
from robust_diffusion.records import provenance, read_records, save_record
from robust_diffusion.records.header import record_header
from robust_diffusion.system.files import locked
from tests.conftest import TINY_DATA

Compose = Callable[..., DictConfig]

KNOWN = {"difficulty", "fidelity", "threat", "surrogates", "versions", "revision", "directory"}
MEASURED = {"accuracy", "attacked", "flags", "nfe", "parts", "processor", "seconds", "val_accuracy"}


@pytest.mark.faults
def test_a_cell_that_another_process_computes_is_waited_for(
    compose: Compose, tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = compose("flow=heat", *tiny_clean)
    header = record_header(cfg)
    monkeypatch.setattr(running, "_measure", lambda *_: pytest.fail("computed twice"))
    records = Path(cfg.paths.records)
    records.mkdir(parents=True)
    lock = records / f".{header.run}.lock"

    held = threading.Event()

    def compute() -> None:
        with locked(lock, waits_for="nobody"):
            held.set()
            time.sleep(1)
            save_record(header | {"accuracy": {"clean": 0.5}}, records)

    other = threading.Thread(target=compute)
    other.start()
    assert held.wait(10)
    assert run_and_record(cfg).accuracy == {"clean": 0.5}
    other.join()
    assert [record.run for record in read_records(records)] == [header.run]
    assert not lock.exists()


TINY_TIMING = ["timing=step", "timing.repeats=3", "timing.warm_up=1", "trainer=cpu", *TINY_DATA]


def test_a_record_holds_what_led_to_the_result_and_nothing_is_written_elsewhere(
    compose: Compose, tiny: list[str], tmp_path: Path
) -> None:
    cfg = compose("flow=heat", "seed=3", *tiny)
    record = run_and_record(cfg)
    assert record.model_fields_set >= KNOWN | MEASURED
    (read,) = read_records(cfg.paths.records)
    assert json.loads(read.model_dump_json()) == json.loads(record.model_dump_json())
    chosen = {"dataset": "synthetic", "model": "graph_pde", "flow": "heat", "seed": 3}
    chosen |= {"solver": "implicit_adams", "epochs": 3}
    assert {key: getattr(record, key) for key in chosen} == chosen
    assert record.budget.max_injected_nodes == 3
    assert set(record.spent) == {"speit", "tdgia"}
    assert record.config.training["max_epochs"] == 3
    assert record.config.model["hidden_channels"] == 8
    assert "${" not in record.model_dump_json()
    assert record.overrides["seed"] == "3"
    outputs = tmp_path / "outputs"
    assert {path.name for path in tmp_path.iterdir()} == {"outputs"}
    assert {path.name for path in outputs.iterdir()} == {"run", "store", "records"}
    assert {p.name for p in (outputs / "records").iterdir()} == {f"{record.run}.json", "sweeps"}
    assert (outputs / record.directory).resolve() == outputs / "run"
    record_failure(cfg, "what went wrong", "DataError")
    assert [r.error for r in read_records(cfg.paths.records)] == [None]  # it finished before
    (outputs / "records" / f"{record.run}.json").unlink()
    record_failure(cfg, "what went wrong", "DataError")
    (failed,) = read_records(cfg.paths.records)
    assert (failed.error, failed.error_kind) == ("what went wrong", "DataError")
    assert failed.accuracy == {}
    assert failed.config == record.config
    assert run_and_record(cfg).accuracy == record.accuracy
    assert [r.error for r in read_records(cfg.paths.records)] == [None]


def test_a_timing_cell_records_a_time_once_on_each_machine(
    compose: Compose,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cfg = compose("flow=heat", *TINY_TIMING)
    record = run_and_record(cfg)
    assert run_and_record(cfg).timing == record.timing
    assert set(record.seconds) == {"diffusion"}
    found = record.timing
    assert (found["step"], found["repeats"], found["nodes"]) == ("diffusion", 3, 200)
    assert 0 < found["fastest"] <= found["q1"] <= record.seconds["diffusion"] <= found["q3"]
    assert (record.nfe, record.threat, record.surrogates) == (8, None, [])
    assert not {"accuracy", "val_accuracy", "epochs", "files"} & record.model_fields_set
    on = record.config.timing["on"]
    assert set(on) == {"cpu", "gpu", "threads", "backend", "torch", "code"}
    other = run_and_record(compose("flow=heat", "backend=torch", *TINY_TIMING))
    assert other.config.timing["on"]["backend"] == other.timing["backend"] == "torch"
    assert other.run != record.run
    assert not (tmp_path / "outputs" / "store").exists()
    for module in (provenance, timing):
        monkeypatch.setattr(module, "cpu_name", lambda: "another processor")
    caplog.clear()
    second = run_and_record(compose("flow=heat", "hydra/launcher=cores", *TINY_TIMING))
    assert "hydra/launcher" in caplog.text  # times taken side by side disturb each other
    assert second.timing["device"] == "another processor"
    tested = record_header(compose("flow=heat", *TINY_DATA)).run
    assert len({record.run, second.run, tested}) == 3


def test_a_notebook_runs_the_cell_of_the_command_line(
    cli: Callable[..., Any], tiny_clean: list[str], tmp_path: Path
) -> None:
    record = run_experiment(["flow=heat", *tiny_clean])
    assert 0 <= record.accuracy["clean"] <= 1
    assert HydraConfig.instance().cfg is None
    assert (tmp_path / "outputs" / record.directory / "curves" / "metrics.csv").is_file()
    assert "done" in cli("flow=heat", *tiny_clean).err
    assert run_experiment(["flow=heat", *tiny_clean]).accuracy == record.accuracy
    with pytest.raises(ConfigError, match="seed=-1"):
        run_experiment(["seed=-1"])


@pytest.mark.parametrize(
    "wrong", [None, 3, "flow=heat", {"flow": "heat"}, [None], ["flow=heat", 3]]
)
def test_overrides_that_are_no_list_of_text_are_one_line(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"^overrides=.*: expected a list of text"):
        run_experiment(wrong)


def drawn() -> list[float]:
    return [random.random(), np.random.random(), torch.rand(1).item()]  # noqa: NPY002


@pytest.mark.parametrize("fails", [False, True])
def test_a_notebook_keeps_its_random_state(
    tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    pl.seed_everything(5)
    expected = drawn()
    pl.seed_everything(5)
    if fails:
        monkeypatch.setattr(running, "save_record", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError) if fails else nullcontext():
        run_experiment(["flow=heat", "attack=none", *tiny_clean])
    assert drawn() == expected


def test_threads_take_turns(tiny_clean: list[str]) -> None:
    def run(seed: int) -> Any:
        return run_experiment(["flow=heat", "attack=none", f"seed={seed}", *tiny_clean])

    with ThreadPoolExecutor(3) as pool:
        records = list(pool.map(run, range(3)))
    assert [record.seed for record in records] == [0, 1, 2]


@pytest.mark.parametrize("logger", ["wandb", "tensorboard"])
def test_a_key_that_a_logger_refuses_is_one_line(logger: str, tiny_clean: list[str]) -> None:
    given = [*tiny_clean, f"logger={logger}", f"+logger.{logger}.nope=1"]
    with pytest.raises(ConfigError, match=rf"^logger\.{logger}: failed to start"):
        run_experiment(given)


Make = Callable[..., Any]


def test_what_cannot_be_timed_is_refused(make_datamodule: Make, make_fit: Make) -> None:
    def timed(model: Make, seed: int = 0) -> TimingResult:
        given = {"datamodule": make_datamodule(), "model": model, "fit": make_fit(), "seed": seed}
        return StepTiming(repeats=4, warm_up=2)(**given)

    gat = partial(GAT, hidden_channels=8)
    result = timed(gat)
    assert (result.nfe, result.timing["step"]) == (0, "aggregation")
    for key, call in {
        "seed=-1": lambda: timed(gat, seed=-1),
        "model=Linear": lambda: timed(lambda in_channels, out_channels: nn.Linear(2, 2)),
        "model: cannot be built": lambda: timed(nn.Linear),
        r"timing\.repeats=1": lambda: StepTiming(repeats=1),
        r"timing\.warm_up=0": lambda: StepTiming(warm_up=0),
        "trainer": lambda: time_step(torch.zeros, torch.device("mps"), repeats=2, warm_up=1),
    }.items():
        with pytest.raises(ConfigError, match=key):
            call()
