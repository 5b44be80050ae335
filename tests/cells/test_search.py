"""The proposals of a search, on functions whose best point is known."""

import math
from collections.abc import Callable

import pytest

from robust_diffusion.errors import ConfigError
from tests.graphs import without_type_checks

pytest.importorskip("optuna", minversion="4", reason="the extra `sweepers` is missing")
from robust_diffusion.cells.search import Search

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


def test_a_search_comes_nearer_than_chance() -> None:
    reached = []
    for n_startup_trials in (10, 60):  # the second one only draws
        search = Search(BOWL, seed=1, n_startup_trials=n_startup_trials)
        run(search, bowl, 60)
        best = search.best()
        assert best is not None
        value, params = best
        assert value == pytest.approx(bowl({k: str(v) for k, v in params.items()}))
        reached.append(value)
    assert reached[0] > -0.05
    assert reached[0] > reached[1]


def test_the_lowest_value_can_be_asked_for() -> None:
    search = Search(["x=interval(-4.0, 4.0)"], direction="minimize", seed=0)
    run(search, lambda point: float(point["x"]) ** 2, 40)
    best = search.best()
    assert best is not None
    assert best[0] < 0.1


def test_the_same_seed_and_values_lead_to_the_same_trials() -> None:
    first, again, other = (run(Search(BOWL, seed=seed), bowl, 30) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    # A longer search begins as the shorter one did.
    assert run(Search(BOWL, seed=0), bowl, 40)[:30] == first


def test_a_failed_trial_is_no_value_and_ends_nothing() -> None:
    search = Search(BOWL, seed=0)
    run(search, lambda point: None if float(point["x"]) > 0 else bowl(point), 40)
    best = search.best()
    assert best is not None
    assert float(best[1]["x"]) <= 0
    search = Search(BOWL, seed=0)
    run(search, lambda _: None, 4)
    assert search.best() is None


@pytest.mark.parametrize(
    ("sweep", "values"),
    [
        ("choice(a,b)", {"a", "b"}),
        ("a,b,[c,d],'e f'", {"a", "b", "[c,d]", "'e f'"}),
        ("range(1,9,3)", {"1", "4", "7"}),
        ("range(9,1,-4)", {"9", "5"}),
        ("range(0.1,0.45,0.1)", {"0.1", "0.2", "0.3", "0.4"}),
        ("int(interval(1,3))", {"1", "2", "3"}),
        ("tag(log,int(interval(1,2)))", {"1", "2"}),
    ],
)
def test_a_sweep_is_searched_where_it_says(sweep: str, values: set[str]) -> None:
    trials = Search([f"k={sweep}"], n_startup_trials=60).propose(60)
    found = {override.removeprefix("k=") for (override,) in trials}
    numbers = sweep.startswith("range(0")
    assert ({str(round(float(v), 9)) for v in found} if numbers else found) == values


@pytest.mark.parametrize(
    ("sweep", "whole"), [("interval(0.01,1.0)", False), ("int(interval(1,100))", True)]
)
def test_a_logarithmic_scale_has_as_many_values_in_each_decade(sweep: str, *, whole: bool) -> None:
    for tagged, share in ((f"tag(log,{sweep})", 0.5), (sweep, 0.1)):
        trials = Search([f"k={tagged}"], n_startup_trials=200).propose(200)
        middle = 10 if whole else 0.1
        low = sum(float(trial[0].removeprefix("k=")) < middle for trial in trials) / 200
        assert low == pytest.approx(share, abs=0.1)


def test_what_is_typed_later_takes_the_place_of_what_stands_before() -> None:
    given = ["a=choice(1,2)", "b=choice(3,4)", "c=5", "+d=6", "~e", "a=9", "c=choice(7)"]
    (trial,) = Search(given).propose(1)
    assert sorted(trial) in (
        ["+d=6", "a=9", "b=3", "c=7", "~e"],
        ["+d=6", "a=9", "b=4", "c=7", "~e"],
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("k=glob(*)", r"k=glob\(\*\): use choice, range or interval"),
        ("k=interval(2.0,1.0)", r"k=interval\(2\.0,1\.0\): .*"),
        ("k=tag(log,interval(0.0,1.0))", r"k=tag\(log,interval\(0\.0,1\.0\)\): .*"),
        ("k=range(1,1)", r"k=range\(1,1\): holds no number"),
    ],
)
def test_a_sweep_that_cannot_be_searched_is_named(given: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Search([given])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"direction": "up"}, r"hydra\.sweeper\.direction=up: unknown; use one of max.*, min"),
        ({"seed": None}, r"hydra\.sweeper\.sampler\.seed=null: must be"),
        ({"n_startup_trials": -1}, r"hydra\.sweeper\.sampler\.n_startup_trials=-1: must be"),
    ],
)
def test_a_bad_option_is_named(option: dict[str, object], message: str) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=message):
        Search(BOWL, **option)
