from collections.abc import Collection

import pytest

from robust_diffusion.records.record import Record
from robust_diffusion.results.frame import frame
from robust_diffusion.results.leaderboard import (
    GRID,
    show_leaderboard,
)
from tests.results.worst_cases import OLD, record, trained_for, with_words

Budgets = list[tuple[int, int]]
SMALL = (5, 20)


def curve(
    model: str, *worst: float, clean: float = 0.8, budgets: Collection[tuple[int, int]] = GRID
) -> list[Record]:
    """Return a run per budget of a model, or flow of a graph PDE."""
    return [
        record(model, budget=budget, clean=clean, auto=of)
        for budget, of in zip(budgets, worst, strict=True)
    ]


MLP = record("mlp", budget=SMALL, clean=0.6, auto=0.6)
GUARD = record("gnn_guard", budget=SMALL, auto=0.7)
FLAGGED = record("gat", budget=SMALL, auto=0.75) | {"flags": {"auto": ["zero_gradient"]}}
RECORDS = [record("graph_pde", flow="beltrami", budget=SMALL, auto=0.2), FLAGGED, MLP, GUARD]
ON_GRID = curve("mlp", *[0.6] * 5, clean=0.6)


def rows(records: list[Record], grid: Budgets | None = None) -> dict[str, dict[str, str]]:
    (board,) = show_leaderboard(frame(records), grid)
    return {row["model"]: row for row in board.cells.to_dict("records")}


def ranks(records: list[Record], grid: Budgets | None = None) -> dict[str, str]:
    return {model: row["rank"] for model, row in rows(records, grid).items()}


def test_each_form_of_features_has_a_table() -> None:
    boards = show_leaderboard(frame([*RECORDS, *map(with_words, RECORDS)]))
    assert sorted("binary features of at most 20 words" in board.title for board in boards) == [
        False,
        True,
    ]


def test_without_runs_there_is_no_table() -> None:
    assert show_leaderboard(frame([])) == []


def test_models_stand_above_and_below_the_mlp() -> None:
    expected = {"gnn_guard": "1", "mlp": "control", "beltrami": "2", "gat": "not a bound"}
    assert list(ranks(RECORDS).items()) == list(expected.items())
    assert [row["above MLP"] for row in rows(RECORDS).values()][:3] == ["+10.00", "0.00", "−40.00"]
    ties = [record(model, auto=of) for model, of in (("gcn", 0.5), ("gin", 0.5), ("gat", 0.1))]
    assert ranks(ties) == {"gcn": "1", "gin": "1", "gat": "3"}


def test_a_seed_without_an_mlp_has_the_mean_of_those_of_its_variant() -> None:
    def released(run: Record) -> Record:
        return run | {"fidelity": "released", "run": f"{run.run} released"}

    of_paper = [record("gcn", seed=seed, budget=SMALL, auto=0.5) for seed in (0, 1)]
    other = released(record("mlp", budget=SMALL, clean=0.3, auto=0.3))
    (board,) = show_leaderboard(frame([*of_paper, MLP, *map(released, of_paper), other]))
    above = board.cells[board.cells["model"] == "gcn"].set_index("variant")["above MLP"]
    assert dict(above) == {"paper": "−10.00", "released": "+20.00"}


def test_the_best_of_several_mlps_is_the_control() -> None:
    weaker = [trained_for(record("mlp", budget=SMALL, clean=0.5, auto=0.5), 10)]
    board = rows([*RECORDS, *weaker])
    assert board["gnn_guard"]["above MLP"] == "+10.00"
    assert [row["rank"] for name, row in board.items() if "mlp" in name] == ["control"] * 2


def test_models_alike_at_the_largest_budget_differ_by_their_curves() -> None:
    lower, higher = curve("gin", 0.7, 0.6, 0.2, 0.1, 0.0), curve("gat", 0.7, 0.6, 0.3, 0.1, 0.0)
    found = rows([*ON_GRID, *lower, *higher])
    assert [row["rank"] for row in found.values()] == ["control", "1", "2"]
    # By hand: 20, 50, 200, 250 and 2,500 edges; heights 10, 0, -30, -50, -60.
    assert found["gat"]["above MLP"] == "−31.44"
    at_one = ranks([*ON_GRID, *lower, *higher], [(50, 50)])
    assert at_one == {"mlp": "control", "gat": "1", "gin": "1"}


def test_a_curve_is_of_the_seeds_that_have_it_whole() -> None:
    whole = curve("gin", 0.7, 0.6, 0.3, 0.1, 0.0)
    further = record("gin", seed=1, auto=0.5)
    row = rows([*ON_GRID, *whole, further])["gin"]
    assert (row["seeds"], row["50x50"], row["rank"]) == ("1", "0.00", "1")
    row = rows([*ON_GRID, *whole[1:], further])["gin"]
    assert (row["seeds"], row["5x4"], row["50x50"]) == ("2", "-", "25.00")
    assert (row["rank"], row["above MLP"]) == ("budgets missing", "-")


def test_rows_name_their_versions_of_auto_if_these_differ() -> None:
    gin, gat = (curve(model, 0.7, 0.6, 0.3, 0.1, 0.0) for model in ("gin", "gat"))
    assert "auto" not in rows([*ON_GRID, *gin, *gat])["gin"]
    found = rows([*ON_GRID, *(run | OLD for run in gin[:2]), *gin[2:], *gat])
    assert [found[name]["auto"] for name in ("mlp", "gin", "gat")] == ["-", "4, 6", "6"]
    # An area is a mean, which may not mix versions.
    assert (found["gin"]["rank"], found["gin"]["above MLP"]) == ("versions mixed", "-")


@pytest.mark.parametrize(("worst", "expected"), [(0.05, [5, 5]), (0.25, [20, 10])])
def test_a_smaller_attack_lowers_every_budget_that_holds_it(
    worst: float, expected: list[float]
) -> None:
    smaller = record("gin", budget=(5, 40), auto=worst)
    row = rows([*ON_GRID, *curve("gin", 0.7, 0.6, 0.3, 0.2, 0.1), smaller])["gin"]
    values = [float(row[f"{nodes}x{edges}"]) for nodes, edges in GRID]
    assert values == pytest.approx([70, 60, 30, *expected])


def test_budgets_off_the_grid_are_shown_if_there_are_no_others() -> None:
    budgets = [(3, 20), (5, 20), (5, 4)]
    every = [curve(model, 0.0, 0.0, 0.0, budgets=budgets) for model in ("mlp", "gin")]
    others = [run for runs in every for run in runs[:2]]
    assert {"3x20", "5x20"} <= rows(others)["mlp"].keys()
    assert "3x20" not in rows([run for runs in every for run in runs])["mlp"]
    assert show_leaderboard(frame(others), [(1, 1)]) == []


def test_what_has_faced_less_is_left_out() -> None:
    strong = record("gat", budget=SMALL, auto=0.79)
    left_out = [
        record("gin", budget=SMALL, pgd=0.79),
        record("gcn", "black_box", budget=SMALL, auto=0.79),
        strong | {"run": "a", "scale": "smoke"},
        strong | {"error": "no data"},
        record("gin", budget=(0, 50), auto=0.7),  # a modification injects no node
        *(of | {"run": f"hard {of.run}", "difficulty": "hard"} for of in (MLP, GUARD)),
    ]
    assert rows([*RECORDS, *left_out]) == rows(RECORDS)
    assert ranks([GUARD, strong | {"experiment": "t-end"}])["gat"] == "1"  # whichever ran it
