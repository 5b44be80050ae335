import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from robust_diffusion.cells import evaluate_cell, experiment, timing
from robust_diffusion.cells.experiment import record_failure, run_and_record
from robust_diffusion.errors import ConfigError
from robust_diffusion.records import append_record, read_records
from robust_diffusion.records.header import record_header
from robust_diffusion.system import threads
from robust_diffusion.system.files import locked
from tests.conftest import TINY_DATA

Compose = Callable[..., DictConfig]

KNOWN = {"difficulty", "fidelity", "threat", "surrogates", "versions", "revision", "directory"}
MEASURED = {"accuracy", "attacked", "flags", "nfe", "parts", "processor", "seconds", "val_accuracy"}


def test_a_record_holds_what_led_to_the_result(compose: Compose, tiny: list[str]) -> None:
    cfg = compose("flow=heat", "seed=3", *tiny)
    record = run_and_record(cfg)
    assert set(record) >= KNOWN | MEASURED
    assert read_records(cfg.paths.records) == [json.loads(json.dumps(record))]
    chosen = {"dataset": "synthetic", "model": "graph_pde", "flow": "heat", "seed": 3}
    assert record.items() >= (chosen | {"solver": "implicit_adams", "epochs": 3}).items()
    assert record["budget"]["declared"]["max_injected_nodes"] == 3
    assert set(record["budget"]["spent"]) == {"speit", "tdgia"}
    assert record["config"]["training"]["max_epochs"] == 3
    assert record["config"]["model"]["hidden_channels"] == 8
    assert "${" not in json.dumps(record)
    assert record["overrides"]["seed"] == "3"


def test_a_cell_writes_only_into_its_folder(
    compose: Compose, tiny_clean: list[str], tmp_path: Path
) -> None:
    cfg = compose("flow=heat", *tiny_clean)
    record = run_and_record(cfg)
    outputs = tmp_path / "outputs"
    assert {path.name for path in tmp_path.iterdir()} == {"outputs"}
    files = {"cell", "store", "records.jsonl", "records.jsonl.lock"}
    assert {path.name for path in outputs.iterdir()} == files
    assert (outputs / record["directory"]).resolve() == outputs / "cell"


def test_a_model_without_flow_and_solver_names_none(
    compose: Compose, tiny_clean: list[str]
) -> None:
    record = run_and_record(compose("model=gcn", *tiny_clean))
    assert (record["model"], record["flow"], record["solver"]) == ("gcn", None, None)
    assert record["nfe"] == 0


@pytest.mark.parametrize(("epoch", "expected"), [(1e9, 1), (0.0, 2)])
@pytest.mark.parametrize("model", ["gcn", "graph_pde"])
def test_threads_are_set_by_the_size_of_the_graph(
    model: str,
    epoch: float,
    expected: int,
    compose: Compose,
    tiny_clean: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "LONG_EPOCH", epoch)
    monkeypatch.setattr(threads, "_cores", lambda: 2)
    before = torch.get_num_threads()
    seen: list[int] = []

    def evaluate(**given: Any) -> Any:
        seen.append(torch.get_num_threads())
        return evaluate_cell(**given)

    monkeypatch.setattr(experiment, "evaluate_cell", evaluate)
    try:
        run_and_record(compose(f"model={model}", "threads=auto", *tiny_clean))
    finally:
        torch.set_num_threads(before)
    assert seen == [expected]


def test_a_failure_is_recorded_with_its_configuration(compose: Compose, tiny: list[str]) -> None:
    cfg = compose("flow=heat", *tiny)
    record_failure(cfg, "what went wrong", "DataError")
    (record,) = read_records(cfg.paths.records)
    assert (record["error"], record["error_kind"]) == ("what went wrong", "DataError")
    assert "accuracy" not in record
    assert record["config"]["flow"]["t_end"] == 1.0


@pytest.mark.faults
def test_a_cell_that_another_process_computes_is_waited_for(
    compose: Compose, tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = compose("flow=heat", *tiny_clean)
    header = record_header(cfg)
    monkeypatch.setattr(experiment, "_measure", lambda *_: pytest.fail("computed twice"))
    records = Path(cfg.paths.records)
    records.parent.mkdir(parents=True)
    lock = records.with_name(f".{records.name}.{header['cell']}.lock")

    held = threading.Event()

    def compute() -> None:
        with locked(lock, waits_for="nobody"):
            held.set()
            time.sleep(1)
            append_record(records, header | {"accuracy": {"clean": 0.5}})

    other = threading.Thread(target=compute)
    other.start()
    assert held.wait(10)
    assert run_and_record(cfg)["accuracy"] == {"clean": 0.5}
    other.join()
    done, reference = read_records(records)
    assert reference["reference"]
    assert reference["cell"] == done["cell"]
    assert not lock.exists()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("+flow.nope=1", r"flow\.nope=1: unknown key; use one of .*t_end"),
        ("+solver.nope=1", r"solver\.nope=1: unknown key; use one of .*num_steps"),
        ("+dataset.source.nope=1", r"source\.nope=1: unknown key; use one of .*num_nodes"),
        ("+surrogates.gcn.nope=1", r"surrogates\.gcn\.nope=1: unknown key; use one of .*dropout"),
        ("+trainer.nope=1", r"trainer\.nope=1: unknown key; use one of .*accelerator"),
        ("+attacks.speit.nope=1", r"speit\.nope=1: unknown key; use one of .*num_steps"),
        ("solver.num_steps=0", r"solver\.num_steps=0"),
        ("threat.fit.max_epochs=0", r"threat\.fit\.max_epochs=0"),
        ("threads=0", r"threads=0"),
        ("paths.records=/dev/null/records.jsonl", r"paths\.records=.*cannot be written"),
    ],
)
def test_a_mistake_is_told_before_any_training(
    compose: Compose, tiny: list[str], monkeypatch: pytest.MonkeyPatch, override: str, words: str
) -> None:
    def never(**_: object) -> None:
        raise AssertionError("training began")

    monkeypatch.setattr(experiment, "evaluate_cell", never)
    key = override.split("=")[0]
    rest = [option for option in tiny if option.split("=")[0] != key]
    with pytest.raises(Exception, match=words) as caught:
        run_and_record(compose(override, *rest))
    assert isinstance(caught.value.__cause__ or caught.value, ConfigError | OSError)


TINY_TIMING = ["timing=step", "timing.repeats=3", "timing.warm_up=1", "trainer=cpu", *TINY_DATA]


def test_a_timing_cell_records_a_time_and_no_accuracy(compose: Compose, tmp_path: Path) -> None:
    cfg = compose("flow=heat", *TINY_TIMING)
    record = run_and_record(cfg)
    assert read_records(cfg.paths.records) == [json.loads(json.dumps(record))]
    assert set(record["seconds"]) == {"diffusion"}
    assert (record["timing"]["step"], record["timing"]["repeats"]) == ("diffusion", 3)
    assert record["nfe"] == 8
    assert (record["threat"], record["surrogates"]) == (None, [])
    assert not {"accuracy", "val_accuracy", "epochs", "files"} & set(record)
    on = record["config"]["timing"]["on"]
    assert set(on) == {"cpu", "gpu", "threads", "backend", "torch", "code"}
    assert not (tmp_path / "outputs" / "store").exists()


def test_a_time_is_not_taken_again_on_the_same_machine_but_on_another(
    compose: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = compose("flow=heat", *TINY_TIMING)
    first = run_and_record(cfg)
    assert run_and_record(cfg) == first
    monkeypatch.setattr(timing, "cpu_name", lambda: "another processor")
    second = run_and_record(cfg)
    assert second["cell"] != first["cell"]
    assert second["timing"]["device"] == "another processor"
    tested = compose("flow=heat", *TINY_DATA)
    assert record_header(tested)["cell"] not in (first["cell"], second["cell"])


def test_times_taken_side_by_side_are_warned_of(
    compose: Compose, caplog: pytest.LogCaptureFixture
) -> None:
    cfg = compose("flow=heat", "hydra/launcher=cores", *TINY_TIMING)
    run_and_record(cfg)
    assert "disturb each other's times" in caplog.text
