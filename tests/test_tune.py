"""The search for hyper-parameters: `experiment=tune`."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="the extra `sweepers` is missing")

Cli = Callable[..., Any]
TUNE = ["experiment=tune", "scale=smoke", "training.max_epochs=3", "logger=none"]


@pytest.fixture(autouse=True)
def _optuna_writes_to_no_closed_stream() -> None:
    import optuna

    optuna.logging.disable_default_handler()


@pytest.mark.slow
def test_a_search_ranks_its_trials_by_validation_accuracy_and_attacks_nothing(cli: Cli) -> None:
    outcome = cli(*TUNE, "hydra.sweeper.n_trials=3")
    assert outcome.status == 0, outcome.err
    assert len(outcome.records) == 3
    assert all(list(record["accuracy"]) == ["clean"] for record in outcome.records)
    shown = [float(row["validation"]) for row in outcome.table]
    measured = sorted((100 * record["val_accuracy"] for record in outcome.records), reverse=True)
    assert shown == pytest.approx(measured, abs=0.005)
    assert "clean" not in outcome.table[0]
    assert f"Best value: {measured[0] / 100}" in outcome.err
    assert "3 of 3 cells done" in outcome.err


@pytest.mark.slow
def test_a_search_goes_on_where_it_was(cli: Cli) -> None:
    first = cli(*TUNE, "hydra.sweeper.n_trials=2").records
    again = cli(*TUNE, "hydra.sweeper.n_trials=2").records
    assert again[:2] == first
    assert [record["cell"] for record in again[2:]] == [record["cell"] for record in first]
    assert all(record["reference"] for record in again[2:])


@pytest.mark.slow
def test_a_trial_that_fails_is_recorded_and_the_others_go_on(cli: Cli) -> None:
    outcome = cli(*TUNE, "hydra.sweeper.n_trials=4", "flow.heads=choice(0,1,2)")
    assert outcome.status == 1
    failed = ["error" in record for record in outcome.records]
    assert any(failed)
    assert not all(failed)
    assert len(failed) == 4
    assert "failed: flow.heads=0: must be" in outcome.err


def test_a_search_without_a_good_trial_is_one_line(cli: Cli) -> None:
    outcome = cli(*TUNE, "hydra.sweeper.n_trials=2", "flow.heads=0")
    assert outcome.status == 1
    assert outcome.error == "error: every trial failed; the lines above say why"
