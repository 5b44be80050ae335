"""Which cells a sweep consists of."""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from robust_diffusion.cells.sweeper import covering, plan

SOLVERS = [
    {"solver": "implicit_adams,explicit_adams", "solver.num_steps": "1,2"},
    {"solver": "dopri5"},
]

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


def value_of(override: str) -> str:
    return override.partition("=")[2]


def as_sets(cells: list[list[str]]) -> Counter[frozenset[str]]:
    return Counter(map(frozenset, cells))


@given(options)
def test_one_product_is_what_hydras_sweeper_makes_of_it(params: dict[str, str]) -> None:
    typed = ["experiment=none", "threads=1,2"]
    cells = plan(params=params, grids=[{}], typed=typed)
    assert as_sets(cells) == as_sets(basic(params, typed))


def test_the_first_option_changes_slowest() -> None:
    cells = plan(params={"seed": "range(2)"}, grids=[{"flow": "heat,grand"}], typed=[])
    assert cells == [
        ["seed=0", "flow=heat"],
        ["seed=0", "flow=grand"],
        ["seed=1", "flow=heat"],
        ["seed=1", "flow=grand"],
    ]


def test_a_typed_value_takes_the_place_of_those_of_the_experiment() -> None:
    params = {"seed": "range(5)", "flow": "heat,grand"}
    cells = plan(params=params, grids=[{}], typed=["seed=range(10)", "flow=beltrami"])
    assert cells == [[f"seed={i}", "flow=beltrami"] for i in range(10)]


def test_other_typed_overrides_stand_in_every_cell() -> None:
    typed = ["experiment=table-5", "+trainer.max_steps=3", "~logger"]
    cells = plan(params={"seed": "0,1"}, grids=SOLVERS, typed=typed)
    assert len(cells) == 10
    assert all(cell[:3] == typed for cell in cells)


def test_several_grids_are_not_multiplied() -> None:
    cells = plan(params={}, grids=SOLVERS, typed=[])
    expected = itertools.product(["implicit_adams", "explicit_adams"], [1, 2])
    assert cells == [
        *([f"solver={solver}", f"solver.num_steps={steps}"] for solver, steps in expected),
        ["solver=dopri5"],
    ]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("solver=dopri5", ["dopri5"]),
        ("solver=dopri5,explicit_adams", ["explicit_adams 1", "explicit_adams 2", "dopri5"]),
        ("solver.num_steps=2", ["implicit_adams 2", "explicit_adams 2"]),
        ("solver.num_steps=4", ["implicit_adams 4", "explicit_adams 4"]),
        ("solver=rk4", ["rk4 1", "rk4 2", "rk4"]),
    ],
)
def test_typing_an_option_narrows_to_the_grids_that_know_it(
    typed: str, expected: list[str]
) -> None:
    cells = plan(params={}, grids=SOLVERS, typed=[typed])
    assert [list(map(value_of, cell)) for cell in cells] == [text.split() for text in expected]
    assert {cell[0].partition("=")[0] for cell in cells} == {"solver"}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("dataset=planetoid_citeseer", ["dataset=planetoid_citeseer k=1"]),
        (
            "dataset=planetoid_citeseer,pubmed",
            ["dataset=planetoid_citeseer k=1", "dataset=pubmed k=2"],
        ),
        ("dataset=citeseer", ["dataset=citeseer k=1"]),
        ("dataset=custom", ["dataset=custom k=1", "dataset=custom k=2"]),
    ],
)
def test_a_stand_in_runs_where_what_it_stands_in_for_does(typed: str, expected: list[str]) -> None:
    grids = [{"dataset": "cora,citeseer", "k": "1"}, {"dataset": "pubmed", "k": "2"}]
    cells = plan(
        params={}, grids=grids, typed=[typed], stand_ins={"citeseer": "planetoid_citeseer"}
    )
    assert [" ".join(cell) for cell in cells] == expected


def test_a_value_that_no_grid_knows_runs_beside_one_that_is_known() -> None:
    cells = plan(params={}, grids=SOLVERS, typed=["solver=dopri5,rk4"])
    assert ["solver=dopri5"] in cells
    assert [cell for cell in cells if "solver=dopri5" not in cell] == [
        ["solver=rk4", "solver.num_steps=1"],
        ["solver=rk4", "solver.num_steps=2"],
        ["solver=rk4"],
    ]


def test_equal_cells_run_once() -> None:
    assert plan(params={"seed": "0,0"}, grids=[{}, {}], typed=[]) == [["seed=0"]]


def test_no_grid_runs_nothing() -> None:
    assert plan(params={"seed": "range(5)"}, grids=[], typed=[]) == []


def test_a_list_is_one_value() -> None:
    cells = plan(params={"attack": "[speit,tdgia],[speit]"}, grids=[{}], typed=[])
    assert cells == [["attack=[speit,tdgia]"], ["attack=[speit]"]]


@given(options, st.integers(1, 30))
def test_thinning_keeps_every_value_and_adds_nothing(params: dict[str, str], most: int) -> None:
    whole = plan(params=params, grids=[{}], typed=[])
    thinned = plan(params=params, grids=[{}], typed=[], max_cells=most)
    assert [cell for cell in whole if cell in thinned] == thinned
    lacking = set(itertools.chain(*whole)) - set(itertools.chain(*thinned))
    assert all(override.startswith("seed=") for override in lacking)
    assert len(thinned) <= most + sum(values.count(",") + 1 for values in params.values())


@pytest.mark.parametrize(("most", "cells", "seeds"), [(24, 24, 2), (23, 12, 1), (60, 24, 2)])
def test_seeds_are_given_up_before_options(most: int, cells: int, seeds: int) -> None:
    params = {"seed": "range(5)", "dataset": "a,b,c", "flow": "w,x,y,z"}
    thinned = plan(params=params, grids=[{}], typed=[], max_cells=most)
    assert len(thinned) == cells
    assert len({cell[0] for cell in thinned}) == seeds


def test_a_large_grid_is_thinned_to_about_what_is_asked() -> None:
    params = {"seed": "range(5)", "a": "range(8)", "b": "range(3)", "c": "range(4)"}
    thinned = plan(params=params, grids=[{}], typed=[], max_cells=28)
    assert 20 <= len(thinned) <= 28


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=3), max_size=8))
def test_covering_cells_have_every_override_and_each_brings_one(cells: list[list[str]]) -> None:
    found = covering(cells)
    assert set(itertools.chain(*found)) == set(itertools.chain(*cells))
    for i, cell in enumerate(found):
        assert set(cell) - set(itertools.chain(*found[:i]))


def test_a_table_without_cells_ends_well(cli: Callable[..., Any]) -> None:
    outcome = cli("experiment=table-15")
    assert (outcome.status, outcome.records) == (0, [])


def test_a_value_that_does_not_compose_stops_the_sweep_at_once(cli: Callable[..., Any]) -> None:
    outcome = cli("experiment=table-3", "flow=heat,nope", "seed=0", "dataset=synthetic")
    assert outcome.status == 1
    assert outcome.error.startswith("error: flow=nope: unknown; use one of acmp, beltrami")
    assert outcome.records == []
