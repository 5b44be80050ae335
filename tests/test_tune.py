"""The search for hyper-parameters: `hydra/sweeper=tune`, as in `experiment=tune`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from robust_diffusion.cells import experiment

Cli = Callable[..., Any]
TUNE = ["experiment=tune", "scale=smoke", "training.max_epochs=3", "logger=none"]


@pytest.fixture
def _optuna() -> None:
    pytest.importorskip("optuna", minversion="4", reason="the extra `sweepers` is missing")


@pytest.mark.slow
@pytest.mark.usefixtures("_optuna")
def test_a_search_ranks_its_trials_by_validation_accuracy_and_attacks_nothing(cli: Cli) -> None:
    outcome = cli(*TUNE, "hydra.sweeper.n_trials=3")
    assert outcome.status == 0, outcome.err
    assert len(outcome.records) == 3
    assert all(list(record["accuracy"]) == ["clean"] for record in outcome.records)
    shown = [float(row["validation"]) for row in outcome.table]
    measured = sorted((100 * record["val_accuracy"] for record in outcome.records), reverse=True)
    assert shown == pytest.approx(measured, abs=0.005)
    assert "clean" not in outcome.table[0]
    assert f"best value: {measured[0] / 100}" in outcome.err
    assert "3 of 3 cells done" in outcome.err
    (found,) = Path().glob("outputs/multirun/*/optimization_results.yaml")
    best = yaml.safe_load(found.read_text())
    assert best["best_value"] == pytest.approx(measured[0] / 100)
    (record, *_) = (r for r in outcome.records if r["val_accuracy"] == best["best_value"])
    assert {key: str(value) for key, value in best["best_params"].items()} == {
        key: record["overrides"][key] for key in best["best_params"]
    }


@pytest.mark.slow
@pytest.mark.usefixtures("_optuna")
def test_a_search_goes_on_where_it_was(cli: Cli) -> None:
    first = cli(*TUNE, "hydra.sweeper.n_trials=2").records
    again = cli(*TUNE, "hydra.sweeper.n_trials=3").records
    assert again[:2] == first
    assert [record["cell"] for record in again[2:4]] == [record["cell"] for record in first]
    assert [record.get("reference", False) for record in again[2:]] == [True, True, False]
    assert [record["job"] for record in again[2:]] == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.usefixtures("_optuna")
def test_a_trial_that_fails_is_recorded_and_the_others_go_on(cli: Cli) -> None:
    outcome = cli(*TUNE, "hydra.sweeper.n_trials=4", "flow.heads=choice(0,1,2)")
    assert outcome.status == 1
    failed = ["error" in record for record in outcome.records]
    assert any(failed)
    assert not all(failed)
    assert len(failed) == 4
    assert "failed: flow.heads=0: must be" in outcome.err


SEARCH = ["-m", "hydra/sweeper=tune", "hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=2"]


@pytest.mark.usefixtures("_optuna")
@pytest.mark.parametrize(
    ("rate", "ran", "error"),
    [
        ("1.0", 4, "error: every trial failed; the lines above say why"),
        ("0.5", 2, "error: hydra.sweeper.max_failure_rate=0.5: 2 of 2 trials failed; the lines"),
    ],
)
def test_a_search_without_a_good_trial_is_one_line(
    cli: Cli, tiny_clean: list[str], rate: str, ran: int, error: str
) -> None:
    given = [f"hydra.sweeper.max_failure_rate={rate}", "flow.heads=0", "seed=range(9)"]
    outcome = cli(*SEARCH, *given, *tiny_clean)
    assert outcome.status == 1
    assert outcome.error.startswith(error)
    assert len(outcome.records) == ran


@pytest.mark.usefixtures("_optuna")
def test_trials_are_told_what_their_cells_return(
    cli: Cli, tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def bowl(cfg: Any) -> dict[str, float]:
        return {"val_accuracy": 1 - (cfg.flow.t_end - 0.5) ** 2}

    monkeypatch.setattr(experiment, "run_and_record", bowl)
    wide = "flow.t_end=interval(0.0,9.0)"
    outcome = cli(*SEARCH, wide, "hydra.sweeper.n_trials=24", *tiny_clean)
    assert outcome.status == 0, outcome.err
    (found,) = Path().glob("outputs/multirun/*/optimization_results.yaml")
    best = yaml.safe_load(found.read_text())
    t_end = best["best_params"]["flow.t_end"]
    assert best["best_value"] == pytest.approx(1 - (t_end - 0.5) ** 2)
    assert abs(t_end - 0.5) < 0.3


def test_without_optuna_the_extra_is_named(
    cli: Cli, tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "robust_diffusion.cells.search", raising=False)
    monkeypatch.setitem(sys.modules, "optuna", None)
    outcome = cli(*SEARCH, "seed=range(3)", *tiny_clean)
    assert outcome.status == 1
    assert outcome.error == (
        "error: hydra/sweeper=tune: needs Optuna 4 or later; "
        "pip install 'robust-diffusion[sweepers]'"
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("n_trials=0", "n_trials=0: must be a whole number of at least 1"),
        ("n_jobs=0", "n_jobs=0: must be a whole number of at least 1"),
        ("max_failure_rate=2", "max_failure_rate=2: must be a finite number at least 0"),
    ],
)
def test_a_bad_option_of_the_search_is_named(
    cli: Cli, tiny_clean: list[str], wrong: str, message: str
) -> None:
    outcome = cli(*SEARCH, f"hydra.sweeper.{wrong}", *tiny_clean)
    assert outcome.status == 1
    assert outcome.error.startswith(f"error: hydra.sweeper.{message}")
