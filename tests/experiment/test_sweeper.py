"""Which runs a sweep consists of, and the keys that some of them lack."""

import itertools
import re
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from hydra_plugins.robust_diffusion_sweeper import GridSweeper
from robust_diffusion.errors import ConfigError
from robust_diffusion.experiment.overrides import compose_all
from robust_diffusion.experiment.progress import mlps_of
from robust_diffusion.experiment.sweeper import covering, plan, without_lacking_keys

options = st.dictionaries(
    st.sampled_from(["seed", "model", "flow", "dataset", "budget.epsilon"]),
    st.integers(1, 6).map(lambda n: ",".join(map(str, range(n)))),
    min_size=1,
    max_size=4,
)


def basic(params: dict[str, str], typed: list[str]) -> list[list[str]]:
    """What Hydra's own sweeper makes of one product."""
    given_to_it = [f"{key}={values}" for key, values in params.items()] + typed
    parsed = OverridesParser.create().parse_overrides(given_to_it)
    ((batch),) = BasicSweeper.split_arguments(parsed, None)
    return batch


@pytest.mark.parametrize(
    ("key", "value"),
    [("max_runs", 0), ("max_runs", -1), ("max_runs", "x"), ("params", 3), ("grids", None)],
)
def test_a_sweep_refuses_what_is_no_grid(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^hydra\.sweeper\.{key}="):
        GridSweeper(**({"params": {}, "grids": [{}]} | {key: value}))


def as_sets(runs: list[list[str]]) -> Counter[frozenset[str]]:
    return Counter(map(frozenset, runs))


@given(options)
def test_one_product_is_what_hydras_sweeper_makes_of_it(params: dict[str, str]) -> None:
    typed = ["experiment=none", "threads=1,2"]
    runs = plan(params=params, grids=[{}], typed=typed)
    assert as_sets(runs) == as_sets(basic(params, typed))


@given(options, st.integers(1, 30))
def test_thinning_keeps_every_value_and_adds_nothing(params: dict[str, str], most: int) -> None:
    whole = plan(params=params, grids=[{}], typed=[])
    thinned = plan(params=params, grids=[{}], typed=[], max_runs=most)
    assert [run for run in whole if run in thinned] == thinned
    lacking = set(itertools.chain(*whole)) - set(itertools.chain(*thinned))
    assert all(override.startswith("seed=") for override in lacking)
    assert len(thinned) <= most + sum(values.count(",") + 1 for values in params.values())


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=3), max_size=8))
def test_covering_runs_have_every_override_and_each_brings_one(runs: list[list[str]]) -> None:
    found = covering(runs)
    assert set(itertools.chain(*found)) == set(itertools.chain(*runs))
    for i, run in enumerate(found):
        assert set(run) - set(itertools.chain(*found[:i]))


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("model=gcn,beltrami", "model=beltrami: unknown; write flow=beltrami"),
        ("training.patience=1,0.5", "training.patience=0.5: must be"),
        (
            "training.patience=0.5,1,0.7",
            "training.patience=0.5: [^;]+; training.patience=0.7: must",
        ),
    ],
)
def test_a_value_that_cannot_be_ends_a_sweep_at_once(
    cli: Callable[..., Any], typed: str, message: str
) -> None:
    outcome = cli("experiment=table-3", "dataset=synthetic", *typed.split())
    assert re.match(f"error: {message}", outcome.error)
    assert outcome.records == []


def test_a_value_of_the_folder_of_a_run_stops_no_sweep(cli: Callable[..., Any]) -> None:
    folder = "+trainer.default_root_dir=${paths.output_dir}"
    options = ["seed=0", "flow=heat", "dataset=synthetic", "scale=smoke", "training.max_epochs=1"]
    assert cli("experiment=table-3", folder, *options).records


SOLVERS = [{"solver": "adams,moulton", "steps": "1,2"}, {"solver": "dopri5"}]
ALL = "adams 1, adams 2, moulton 1, moulton 2, dopri5"
DATASETS = [{"dataset": "cora,citeseer", "k": "1"}, {"dataset": "pubmed", "k": "2"}]


@pytest.mark.parametrize(
    ("params", "grids", "typed", "expected"),
    [
        # The first option changes slowest.
        ("seed=range(2)", [{"flow": "a,b"}], "", "0 a, 0 b, 1 a, 1 b"),
        # A typed value takes the place of those of the experiment; other ones stand in every run.
        ("seed=range(5)", [{}], "seed=7 flow=c", "c 7"),
        ("seed=3", [{}], "+t.x=4", "4 3"),
        # Several grids are not multiplied; equal runs count once; a list is one value.
        ("", SOLVERS, "", ALL),
        ("seed=0;0", [{}, {}], "", "0"),
        ("seed=range(5)", [], "", ""),
        ("attack=[a];[b]", [{}], "", "[a], [b]"),
        # Typing an option narrows to the grids that know it.
        ("", SOLVERS, "solver=dopri5", "dopri5"),
        ("", SOLVERS, "solver=dopri5,moulton", "moulton 1, moulton 2, dopri5"),
        ("", SOLVERS, "steps=4", "adams 4, moulton 4"),
        ("", SOLVERS, "solver=rk4", "rk4 1, rk4 2, rk4"),
        # A stand-in runs where what it stands in for does.
        ("", DATASETS, "dataset=planetoid", "planetoid 1"),
        ("", DATASETS, "dataset=planetoid,pubmed", "planetoid 1, pubmed 2"),
        ("", DATASETS, "dataset=custom", "custom 1, custom 2"),
        # Of options that no grid has together, each runs in its own; one that both have, in both.
        (
            "seed=0",
            [{"m": "a,b", "t": "1,2"}, {"f": "c,d", "t": "1,2"}],
            "m=a f=x t=2",
            "0 a 2, 0 x 2",
        ),
        ("seed=0", [{"m": "a", "k": "1"}, {"m": "b", "f": "c"}], "m=a k=2 f=d", "d 0 a 2"),
    ],
)
def test_a_plan(params: str, grids: list[dict[str, str]], typed: str, expected: str) -> None:
    fixed = {k: v.replace(";", ",") for k, _, v in (p.partition("=") for p in params.split())}
    given = {"params": fixed, "grids": grids, "typed": typed.split()}
    runs = plan(**given, stand_ins={"citeseer": "planetoid"})
    assert ", ".join(" ".join(o.partition("=")[2] for o in run) for run in runs) == expected


@pytest.mark.parametrize("typed", ["k=range(0)", "k=interval(0,1)"])
def test_a_sweep_without_values_is_named(typed: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{typed}: expected")):
        plan(params={}, grids=[{}], typed=[typed])


@pytest.mark.parametrize(("most", "runs", "seeds"), [(24, 24, 2), (23, 12, 1), (60, 24, 2)])
def test_seeds_are_given_up_before_options(most: int, runs: int, seeds: int) -> None:
    params = {"seed": "range(5)", "dataset": "a,b,c", "flow": "w,x,y,z"}
    thinned = plan(params=params, grids=[{}], typed=[], max_runs=most)
    assert (len(thinned), len({run[0] for run in thinned})) == (runs, seeds)


@pytest.mark.parametrize(
    ("typed", "key", "values"),
    [
        ("threat=white_box,black_box", "threat.fit.max_epochs=5", [None, "5"]),
        ("surrogate=[gcn],[gat]", "surrogates.gat.heads=2", [None, "2"]),
    ],
)
def test_a_key_is_left_out_where_an_option_lacks_it(
    typed: str, key: str, values: list[str | None]
) -> None:
    runs = plan(params={}, grids=[{}], typed=[typed, key, "seed=3"])
    runs = [dict(o.split("=", 1) for o in run) for run in without_lacking_keys(runs, compose_all)]
    assert [run.get(key.partition("=")[0]) for run in runs] == values
    assert {run["seed"] for run in runs} == {"3"}


def test_a_key_that_the_default_option_lacks_is_swept_with_one_that_has_it(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str | None] = []

    def collect(cfg: Any) -> SimpleNamespace:
        runs.append(cfg.model.get("heads"))
        return SimpleNamespace(val_accuracy=0.5)

    monkeypatch.setattr("robust_diffusion.experiment.run.run_and_record", collect)
    outcome = cli("model=gcn,gat", "-m", "model.heads=2", "mlp=false")  # options may stand anywhere
    assert (outcome.status, runs) == (0, [None, 2]), outcome.err


def test_an_mlp_is_trained_per_dataset_training_and_seed() -> None:
    runs = [
        [f"flow={flow}", f"seed={seed}", "attack=[speit]", "budget.epsilon=1", "dataset=cora"]
        for flow in ("heat", "grand")
        for seed in (0, 1)
    ]
    mlps = [["model=mlp", "attack=none", f"seed={seed}", "dataset=cora"] for seed in (0, 1)]
    assert [sorted(run) for run in mlps_of(runs)] == [sorted(run) for run in mlps]
    (one,) = mlps_of(
        [["model.flow.heads=2", "model@surrogates.a=gcn", "+threat.fit.x=1", "mlp=true"]]
    )
    assert one == ["mlp=true", "model=mlp", "attack=none"]
