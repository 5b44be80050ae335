"""Searches: on functions whose best point is known, and as `hydra/sweeper=tune`."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from robust_diffusion.errors import ConfigError
from tests.graphs import without_type_checks

pytest.importorskip("optuna", minversion="4", reason="the extra `sweepers` is missing")
from robust_diffusion.experiment.search import Search

Objective = Callable[[dict[str, str]], float | None]


def run(search: Search, objective: Objective, trials: int, at_a_time: int = 2) -> list[list[str]]:
    proposed = []
    for _ in range(trials // at_a_time):
        batch = search.propose(at_a_time)
        search.judge([objective(dict(o.split("=") for o in trial)) for trial in batch])
        proposed += batch
    return proposed


def bowl(point: dict[str, str]) -> float:
    """Largest, 0, at x = 0.5 and rate = 0.01."""
    return -((float(point["x"]) - 0.5) ** 2) - math.log10(float(point["rate"]) / 0.01) ** 2


BOWL = ["x=interval(-4.0, 4.0)", "rate=tag(log, interval(0.0001, 1.0))"]


@pytest.mark.parametrize(
    ("named", "given", "options"),
    [
        *((of, [of], {}) for of in ("k=glob(*)", "k=interval(2.0,1.0)", "k=range(1,1)")),
        ("hydra/sweeper=tune", ["k=1"], {}),
        ("k=tag(log,interval(0.0,1.0))", ["k=tag(log,interval(0.0,1.0))"], {}),
        ("hydra.sweeper.sampler.seed=null", BOWL, {"seed": None}),
        ("hydra.sweeper.sampler.n_startup_trials=-1", BOWL, {"n_startup_trials": -1}),
    ],
)
def test_what_cannot_be_searched_is_named(named: str, given: list[str], options: Any) -> None:
    with without_type_checks(), pytest.raises(ConfigError) as caught:
        Search(given, **options)
    assert str(caught.value).startswith(f"{named}: ")


def test_a_search_comes_nearer_than_chance_and_is_repeated_by_its_seed() -> None:
    reached = []
    for n_startup_trials in (10, 60):  # the second one only draws
        search = Search(BOWL, seed=1, n_startup_trials=n_startup_trials)
        run(search, bowl, 60)
        reached.append((search.best() or [-9])[0])
    assert reached[0] > -0.05
    assert reached[0] > reached[1]
    first, again, other = (run(Search(BOWL, seed=seed), bowl, 30) for seed in (0, 0, 1))
    assert first == again != other
    # A longer search begins as the shorter one did.
    assert run(Search(BOWL, seed=0), bowl, 40)[:30] == first


def test_a_failed_trial_is_no_value_and_ends_nothing() -> None:
    for value in (lambda x: None if x > 0 else x**2, lambda _: None):
        search = Search(["x=interval(-4.0, 4.0)"], direction="minimize", seed=0)
        run(search, lambda point, value=value: value(float(point["x"])), 40)
        best = search.best()
        assert (best is None) == (value(-1) is None)
        assert best is None or (best[0] < 0.1 and float(best[1]["x"]) <= 0)


@pytest.mark.parametrize(
    ("sweep", "values"),
    [
        ("choice(a,b)", {"a", "b"}),
        ("a,b,[c,d],'e f'", {"a", "b", "[c,d]", "'e f'"}),
        ("range(9,1,-4)", {"9", "5"}),
        ("int(interval(1,3))", {"1", "2", "3"}),
        ("tag(log,int(interval(1,2)))", {"1", "2"}),
        ("range(0.1,0.45,0.1)", None),
    ],
)
def test_a_sweep_is_searched_where_it_says(sweep: str, values: set[str] | None) -> None:
    given = ["k=choice(3)", f"k={sweep}", "c=5", "+d=6", "~e"]  # what is typed later counts
    trials = Search(given, n_startup_trials=60).propose(60)
    found = {next(o for o in trial if o.startswith("k="))[2:] for trial in trials}
    tenths = {round(float(v), 9) for v in found} if values is None else set()
    assert found == values or tenths == {0.1, 0.2, 0.3, 0.4}


TUNE = ["experiment=tune", "scale=smoke", "training.max_epochs=3", "logger=none"]
SEARCH = ["-m", "hydra/sweeper=tune", "hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=2"]


@pytest.mark.slow
def test_a_search_ranks_its_trials_and_goes_on_where_it_was(cli: Callable[..., Any]) -> None:
    first = cli(*TUNE, "hydra.sweeper.n_trials=2").records
    outcome = cli(*TUNE, "hydra.sweeper.n_trials=3")
    assert outcome.status == 0, outcome.err
    assert outcome.records[:2] == first
    again = outcome.records[2:]
    assert [record["run"] for record in again[:2]] == [record["run"] for record in first]
    assert [record.get("reference", False) for record in again] == [True, True, False]
    assert [record["job"] for record in again] == [0, 1, 2]
    cells = [*first, again[-1]]
    assert all(list(record["accuracy"]) == ["clean"] for record in cells)
    measured = sorted((100 * record["val_accuracy"] for record in cells), reverse=True)
    shown = [float(row["validation"]) for row in outcome.table]
    assert shown == pytest.approx(measured, abs=0.005)
    *_, found = sorted(Path().glob("outputs/multirun/*/optimization_results.yaml"))
    best = yaml.safe_load(found.read_text())
    assert best["best_value"] == pytest.approx(measured[0] / 100)
    (record, *_) = (r for r in cells if r["val_accuracy"] == best["best_value"])
    given = {key: record["overrides"][key] for key in best["best_params"]}
    assert {key: str(value) for key, value in best["best_params"].items()} == given


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "heads", "ran", "error"),
    [
        ("1.0", "0", 4, "error: every trial failed"),
        ("0.5", "0", 2, "error: hydra.sweeper.max_failure_rate=0.5"),
        ("1.0", "choice(0,1)", 4, ""),
    ],
)
def test_trials_that_fail_are_recorded_and_the_others_go_on(
    cli: Callable[..., Any], tiny_clean: list[str], rate: str, heads: str, ran: int, error: str
) -> None:
    given = [f"hydra.sweeper.max_failure_rate={rate}", f"flow.heads={heads}", "seed=range(9)"]
    outcome = cli(*SEARCH, *given, *tiny_clean)
    assert outcome.status == 1
    assert len(outcome.records) == ran
    failed = ["error" in record for record in outcome.records]
    assert all(failed) if error else any(failed) and not all(failed)
    assert not error or outcome.error.startswith(error)
