import math
from collections.abc import Collection
from typing import Any

import pandas as pd
import pytest

from robust_diffusion.records.record import Record
from robust_diffusion.records.submission import Submission
from robust_diffusion.results.frame import frame
from robust_diffusion.results.leaderboard import (
    GRID,
    best_known,
    board_records,
    budgets_of,
    known_model,
    leaderboard,
    with_submissions,
)
from tests.results.worst_cases import OLD, record, trained_for, with_words

Budgets = list[tuple[int, int]]
SMALL = (5, 20)


def curve(
    model: str,
    *worst: float,
    clean: float = 0.8,
    budgets: Collection[tuple[int, int]] = GRID,
    seed: int = 0,
) -> list[Record]:
    """Return a run per budget of a model, or flow of a graph PDE."""
    return [
        record(model, budget=budget, clean=clean, auto=of, seed=seed)
        for budget, of in zip(budgets, worst, strict=True)
    ]


def seeds(model: str, *worst: float, **changes: Any) -> list[Record]:
    """Return one run within the small budget per seed."""
    return [
        record(model, budget=SMALL, auto=of, seed=seed) | changes for seed, of in enumerate(worst)
    ]


MLP = record("mlp", budget=SMALL, clean=0.6, auto=0.6)
GUARD = record("gnn_guard", budget=SMALL, auto=0.7)
FLAGGED = record("gat", budget=SMALL, auto=0.75) | {"flags": {"auto": ["zero_gradient"]}}
RECORDS = [record("graph_pde", flow="beltrami", budget=SMALL, auto=0.2), FLAGGED, MLP, GUARD]
ON_GRID = curve("mlp", *[0.6] * 5, clean=0.6)
MLPS = [record("mlp", budget=SMALL, clean=0.6, auto=0.6, seed=seed) for seed in range(3)]


def rows(records: list[Record], grid: Budgets | None = None) -> dict[str, dict[Any, Any]]:
    board = leaderboard(frame(records), grid)
    assert {*board["dataset"]} == {"cora"}
    return {row["model"]: row for row in board.to_dict("records")}


def reasons(records: list[Record]) -> dict[str, str]:
    return {model: row["reason"] for model, row in rows(records).items()}


def ranks(records: list[Record]) -> dict[str, int | None]:
    found = {model: row["rank"] for model, row in rows(records).items()}
    return {model: None if pd.isna(rank) else rank for model, rank in found.items()}


def test_each_form_of_features_has_a_board() -> None:
    found = leaderboard(frame([*RECORDS, *map(with_words, RECORDS)]))
    limits = found["features"].unique()
    assert sorted("binary features of at most 20 words" in text for text in limits) == [False, True]


def test_without_runs_there_is_no_board() -> None:
    assert leaderboard(frame([])).empty


def test_models_stand_above_and_below_the_mlp() -> None:
    found = rows(RECORDS)
    above = {"gat": 15, "gnn_guard": 10, "beltrami": -40}
    assert {name: row["above_mlp"] for name, row in found.items()} == pytest.approx(
        {"mlp": 0} | above
    )
    assert [name for name in found if name != "mlp"] == [*above]
    assert found["gat"]["flags"] == "zero_gradient"


def test_a_rank_needs_three_seeds() -> None:
    two, three = seeds("gin", 0.3, 0.3), seeds("gcn", 0.2, 0.2, 0.2)
    assert ranks([*MLPS, *two, *three]) == {"mlp": None, "gcn": 1, "gin": None}
    assert reasons([*MLPS, *two, *three])["gin"] == "2 of 3 seeds"


def test_models_whose_intervals_overlap_share_a_rank() -> None:
    close = [*seeds("gin", 0.5, 0.52, 0.54), *seeds("gat", 0.49, 0.52, 0.53)]
    records = [*MLPS, *close, *seeds("gcn", 0.1, 0.1, 0.1), *seeds("appnp", 0.7, 0.7, 0.7)]
    assert ranks(records) == {"appnp": 1, "mlp": None, "gin": 2, "gat": 2, "gcn": 4}
    row = rows(records)["gin"]
    assert (row["low"] < row["above_mlp"] < row["high"], row["seeds"]) == (True, 3)


def test_ranked_rows_have_one_version_of_auto() -> None:
    records = [*MLPS, *seeds("gin", 0.3, 0.3, 0.3), *seeds("gat", 0.4, 0.4, 0.4)]
    older = seeds("gcn", 0.5, 0.5, 0.5, **OLD)
    assert ranks([*records, *older]) == {"mlp": None, "gat": 1, "gin": 2, "gcn": None}
    assert reasons([*records, *older])["gcn"] == "not by auto 6, as the ranked ones"


def test_a_number_in_doubt_has_no_rank_and_a_weak_attack_has() -> None:
    in_doubt = seeds("gin", 0.3, 0.3, 0.3, flags={"victim": ["diverged"]})
    weak = seeds("gat", 0.4, 0.4, 0.4, flags={"auto": ["not_converged"]})
    assert ranks([*MLPS, *in_doubt, *weak]) == {"mlp": None, "gat": 1, "gin": None}
    assert reasons([*MLPS, *in_doubt, *weak])["gin"] == "diverged"


def test_a_seed_without_an_mlp_has_the_mean_of_those_of_its_variant() -> None:
    def released(run: Record) -> Record:
        return run | {"fidelity": "released", "run": f"{run.run} released"}

    of_paper = [record("gcn", seed=seed, budget=SMALL, auto=0.5) for seed in (0, 1)]
    other = released(record("mlp", budget=SMALL, clean=0.3, auto=0.3))
    board = leaderboard(frame([*of_paper, MLP, *map(released, of_paper), other]))
    above = board[board["model"] == "gcn"].set_index("variant")["above_mlp"]
    assert dict(above) == pytest.approx({"paper": -10, "released": 20})


def test_the_best_of_several_mlps_is_the_control() -> None:
    weaker = [trained_for(record("mlp", budget=SMALL, clean=0.5, auto=0.5), 10)]
    board = rows([*RECORDS, *weaker])
    assert board["gnn_guard"]["above_mlp"] == pytest.approx(10)
    assert [row["control"] for name, row in board.items() if "mlp" in name] == [True] * 2


def test_models_alike_at_the_largest_budget_differ_by_their_curves() -> None:
    lower, higher = curve("gin", 0.7, 0.6, 0.2, 0.1, 0.0), curve("gat", 0.7, 0.6, 0.3, 0.1, 0.0)
    found = rows([*ON_GRID, *lower, *higher])
    assert [*found] == ["mlp", "gat", "gin"]
    # By hand: 20, 50, 200, 250 and 2,500 edges; heights 10, 0, -30, -50, -60.
    assert found["gat"]["above_mlp"] == pytest.approx(-31.44, abs=0.005)
    at_one = rows([*ON_GRID, *lower, *higher], [(50, 50)])
    assert at_one["gat"]["above_mlp"] == at_one["gin"]["above_mlp"]


def test_a_curve_is_of_the_seeds_that_have_it_whole() -> None:
    whole = curve("gin", 0.7, 0.6, 0.3, 0.1, 0.0)
    further = record("gin", seed=1, auto=0.5)
    row = rows([*ON_GRID, *whole, further])["gin"]
    assert (row["seeds"], row["50x50"], row["reason"]) == (1, 0, "1 of 3 seeds")
    row = rows([*ON_GRID, *whole[1:], further])["gin"]
    assert (row["seeds"], row["50x50"]) == (2, 25)
    assert math.isnan(row["5x4"])
    assert math.isnan(row["above_mlp"])
    assert row["reason"] == "without 5x4; 2 of 3 seeds"


def test_rows_name_their_versions_of_auto() -> None:
    gin, gat = (curve(model, 0.7, 0.6, 0.3, 0.1, 0.0) for model in ("gin", "gat"))
    found = rows([*ON_GRID, *(run | OLD for run in gin[:2]), *gin[2:], *gat])
    assert [found[name]["auto"] for name in ("mlp", "gin", "gat")] == ["", "4, 6", "6"]
    # An area is a mean, which may not mix versions.
    assert math.isnan(found["gin"]["above_mlp"])
    assert "auto 4 and 6 mixed" in found["gin"]["reason"]


@pytest.mark.parametrize(("worst", "expected"), [(0.05, [5, 5]), (0.25, [20, 10])])
def test_a_smaller_attack_lowers_every_budget_that_holds_it(
    worst: float, expected: list[float]
) -> None:
    smaller = record("gin", budget=(5, 40), auto=worst)
    row = rows([*ON_GRID, *curve("gin", 0.7, 0.6, 0.3, 0.2, 0.1), smaller])["gin"]
    values = [row[f"{nodes}x{edges}"] for nodes, edges in GRID]
    assert values == pytest.approx([70, 60, 30, *expected])


def test_budgets_off_the_grid_are_shown_if_there_are_no_others() -> None:
    budgets = [(3, 20), (5, 20), (5, 4)]
    every = [curve(model, 0.0, 0.0, 0.0, budgets=budgets) for model in ("mlp", "gin")]
    others = [run for runs in every for run in runs[:2]]
    assert budgets_of(leaderboard(frame(others))) == {"3x20": (3, 20), "5x20": (5, 20)}
    assert "3x20" not in rows([run for runs in every for run in runs])["mlp"]
    assert leaderboard(frame(others), [(1, 1)]).empty


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
    pd.testing.assert_frame_equal(
        leaderboard(frame([*RECORDS, *left_out])), leaderboard(frame(RECORDS))
    )
    # On the boards of the page, it is listed without a rank.
    board = leaderboard(frame([*RECORDS, *left_out]), datasets=["cora"]).set_index("model")
    assert board.loc["gin", "reason"] == "not attacked by auto"
    assert board.loc["gin", "5x20"] == pytest.approx(79)


def test_a_dataset_without_auto_lists_transferred_attacks_and_its_mlp() -> None:
    attacked = record("gin", "black_box", budget=(30, 30), speit=0.5, tdgia=0.4)
    clean = record("mlp", "black_box", budget=(30, 30), clean=0.6)
    records = [run | {"dataset": "pubmed"} for run in (attacked, clean)]
    board = leaderboard(frame(records), datasets=["pubmed"]).set_index("model")
    assert [*board.index] == ["mlp", "gin"]
    assert board.loc["gin", ["transferred", "30x30"]].tolist() == pytest.approx([40, 40])
    assert board.loc["mlp", "30x30"] == pytest.approx(60)


def test_the_records_of_a_board_are_enough() -> None:
    others = [run | {"dataset": "pubmed"} for run in (record("gin", "black_box", speit=0.5), *MLPS)]
    records = [*RECORDS, *others, record("gat", "black_box", speit=0.5)]
    pd.testing.assert_frame_equal(
        leaderboard(frame(board_records(records)), datasets=["cora", "pubmed"]),
        leaderboard(frame(records), datasets=["cora", "pubmed"]),
    )


LOWER = Submission(
    author="Ada",
    attack="mine",
    nodes=5,
    edges=4,
    accuracy=0.65,
    graph="graph.safetensors",
    graph_sha256="0",
    earlier=0.7,
    earlier_attack="auto",
)


def test_a_submitted_graph_lowers_its_budget_and_those_around_it() -> None:
    runs = curve("gin", 0.7, 0.6, 0.68, 0.1, 0.0)
    of_runs = frame([*ON_GRID, *runs])
    assert best_known(of_runs, runs[0].run, (5, 4)) == (0.7, "auto (white box)")
    lowered = with_submissions(of_runs, [(runs[0].run, LOWER), ("elsewhere", LOWER)])
    board = leaderboard(lowered).set_index("model")
    assert board.loc["gin", ["5x4", "50x4", "5x50"]].tolist() == pytest.approx([65, 65, 10])
    assert best_known(lowered, runs[0].run, (5, 4)) == (0.65, "Ada: mine")
    # What is submitted is no attack by `auto`, and needs none.
    assert board.loc["gin", "auto"] == "6"
    before = leaderboard(of_runs).set_index("model")
    assert before.loc["mlp"].equals(board.loc["mlp"])


def test_models_have_the_names_that_people_use() -> None:
    assert known_model("gnn_guard").name == "GNNGuard"
    assert known_model("grand, adversary").name == "GRAND, adversarially trained"
    assert known_model("heat, flow.rate=2").kind == "flow"
    assert known_model("own").name == "own"
