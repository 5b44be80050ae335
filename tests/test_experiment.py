import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, read_write

from robust_diffusion import experiment
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation import read_records, timing
from robust_diffusion.evaluation.header import record_header
from robust_diffusion.experiment import record_failure, run_and_record
from tests.conftest import TINY_DATA

Compose = Callable[..., DictConfig]

FIELDS = {
    "dataset",
    "difficulty",
    "model",
    "flow",
    "solver",
    "fidelity",
    "threat",
    "seed",
    "surrogates",
    "accuracy",
    "mean_accuracy",
    "attacked",
    "parts",
    "val_accuracy",
    "nfe",
    "epochs",
    "seconds",
    "processor",
    "budget",
    "config",
    "overrides",
    "versions",
    "revision",
    "directory",
    "job",
    "time",
}


def test_a_record_holds_what_led_to_the_result(compose: Compose, tiny: list[str]) -> None:
    cfg = compose("flow=heat", "seed=3", *tiny)
    record = run_and_record(cfg)
    assert set(record) >= FIELDS
    assert read_records(cfg.paths.records) == [json.loads(json.dumps(record))]
    assert (record["dataset"], record["model"], record["flow"]) == (
        "synthetic",
        "graph_pde",
        "heat",
    )
    assert (record["solver"], record["seed"], record["epochs"]) == ("implicit_adams", 3, 3)
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


def test_a_failure_is_recorded_with_its_configuration(compose: Compose, tiny: list[str]) -> None:
    cfg = compose("flow=heat", *tiny)
    record_failure(cfg, "what went wrong", "DataError")
    (record,) = read_records(cfg.paths.records)
    assert (record["error"], record["error_kind"]) == ("what went wrong", "DataError")
    assert "accuracy" not in record
    assert record["config"]["flow"]["t_end"] == 1.0


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
    compose: Compose,
    tiny: list[str],
    monkeypatch: pytest.MonkeyPatch,
    override: str,
    words: str,
) -> None:
    def never(**_: object) -> None:
        raise AssertionError("training began")

    monkeypatch.setattr(experiment, "evaluate_cell", never)
    key = override.split("=")[0]
    rest = [option for option in tiny if option.split("=")[0] != key]
    with pytest.raises(Exception, match=words) as caught:
        run_and_record(compose(override, *rest))
    assert isinstance(caught.value.__cause__ or caught.value, ConfigError | OSError)


GUARDED = "model=beltrami_guard"
HAS_ITS_OWN = f"{GUARDED} has its own, beltrami"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["+nope=1"], "nope=1: unknown key"),
        (["model=gcn", "flow=heat"], "flow=heat: model=gcn has none; drop it"),
        (["model=gcn", "flow.t_end=3"], "flow.t_end=3: model=gcn has none; drop it"),
        (["model=gcn", "solver=dopri5"], "solver=dopri5: model=gcn has none; drop it"),
        ([GUARDED, "flow=heat"], f"flow=heat: {HAS_ITS_OWN}; drop it"),
        (
            [GUARDED, "flow.t_end=3"],
            f"flow.t_end=3: {HAS_ITS_OWN}; set model.flow.t_end instead",
        ),
        (
            [GUARDED, "flow=beltrami", "flow.heads=2"],
            f"flow.heads=2: {HAS_ITS_OWN}; set model.flow.heads instead",
        ),
    ],
)
def test_an_override_that_nothing_reads_is_refused(
    compose: Compose, tiny_clean: list[str], overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        run_and_record(compose(*overrides, *tiny_clean))


def test_what_a_model_of_its_own_flow_reads_is_taken(
    compose: Compose, tiny_clean: list[str]
) -> None:
    overrides = ["flow=beltrami", "model.flow.t_end=0.5", "solver=rk4", "solver.num_steps=1"]
    record = run_and_record(compose(GUARDED, *overrides, *tiny_clean))
    assert record["model"] == "beltrami_guard"
    assert (record["flow"], record["solver"]) == ("beltrami", "rk4")
    assert record["config"]["model"]["flow"]["t_end"] == 0.5
    assert record["config"]["model"]["solver"]["num_steps"] == 1


def test_in_a_sweep_an_override_that_nothing_reads_is_left_to_the_others(
    compose: Compose, tiny_clean: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    cfg = compose(GUARDED, "flow=heat", *tiny_clean)
    with read_write(HydraConfig.get()):
        HydraConfig.get().mode = RunMode.MULTIRUN
    assert run_and_record(cfg)["flow"] == "beltrami"
    assert f"flow=heat: {HAS_ITS_OWN}; drop it" in caplog.text


TIMED = ["timing=step", "timing.repeats=3", "timing.warm_up=1", "trainer=cpu", *TINY_DATA]


def test_a_timing_cell_records_a_time_and_no_accuracy(compose: Compose, tmp_path: Path) -> None:
    cfg = compose("flow=heat", *TIMED)
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
    cfg = compose("flow=heat", *TIMED)
    first = run_and_record(cfg)
    assert run_and_record(cfg) == first
    monkeypatch.setattr(timing, "cpu_name", lambda: "another processor")
    second = run_and_record(cfg)
    assert second["cell"] != first["cell"]
    assert second["timing"]["device"] == "another processor"
    tested = compose("flow=heat", *TINY_DATA)
    assert record_header(tested)["cell"] not in (first["cell"], second["cell"])


def test_where_an_accuracy_was_computed_makes_no_other_cell(
    compose: Compose, tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = compose("flow=heat", *tiny_clean)
    before = record_header(cfg)["cell"]
    monkeypatch.setattr(timing, "cpu_name", lambda: "another processor")
    assert record_header(cfg)["cell"] == before


@pytest.mark.parametrize(
    "override", ["attack=[speit]", "threat=white_box", "training.max_epochs=3", "surrogate=[gat]"]
)
def test_what_timing_does_not_read_is_refused(compose: Compose, override: str) -> None:
    message = f"{override}: timing trains and attacks nothing; drop it"
    with pytest.raises(ConfigError, match=re.escape(message)):
        run_and_record(compose(override, *TIMED))


def test_times_taken_side_by_side_are_warned_of(
    compose: Compose, caplog: pytest.LogCaptureFixture
) -> None:
    cfg = compose("flow=heat", "hydra/launcher=joblib", *TIMED)
    run_and_record(cfg)
    assert "disturb each other's times" in caplog.text
