from dataclasses import asdict, replace

import pytest

from robust_diffusion.records.records import Record
from robust_diffusion.results.leaderboard import GRID, show_leaderboard
from tests.results.worst_cases import record
from tests.zoo import BUDGET

MLP = record("mlp", accuracy={"clean": 0.6, "auto": 0.6})
GUARD = record("gnn_guard", accuracy={"clean": 0.8, "auto": 0.7})
FLOW = record("graph_pde", flow="beltrami", accuracy={"clean": 0.8, "auto": 0.2})
FLAGGED = record("gat", accuracy={"clean": 0.8, "auto": 0.75}, flags={"auto": ["zero_gradient"]})
RECORDS = [FLOW, FLAGGED, MLP, GUARD]


def rows(
    records: list[Record], grid: list[tuple[int, int]] | None = None
) -> dict[str, dict[str, str]]:
    (board,) = show_leaderboard(records, grid)
    return {row["model"]: row for row in board.cells.to_dict("records")}


def ranks(records: list[Record], grid: list[tuple[int, int]] | None = None) -> dict[str, str]:
    return {model: row["rank"] for model, row in rows(records, grid).items()}


def within(nodes: int, edges: int, made: Record, worst: float = 0.0) -> Record:
    """The record at another budget."""
    budget = replace(BUDGET, max_injected_nodes=nodes, max_edges_per_injected_node=edges)
    return made | {
        "run": f"{made['run']} {nodes}x{edges}",
        "budget": {"declared": asdict(budget)},
        "accuracy": made["accuracy"] | {"auto": worst},
    }


def curve(made: Record, *worst: float) -> list[Record]:
    return [within(*point, made, of) for point, of in zip(GRID, worst, strict=True)]


ON_GRID = curve(MLP, 0.6, 0.6, 0.6, 0.6, 0.6)


def test_models_stand_above_and_below_the_mlp() -> None:
    expected = {"gnn_guard": "1", "mlp": "control", "beltrami": "2", "gat": "not a bound"}
    assert list(ranks(RECORDS).items()) == list(expected.items())
    assert [row["above MLP"] for row in rows(RECORDS).values()][:3] == ["+10.00", "0.00", "−40.00"]
    ties = [record("gcn"), record("grand"), record("gat", accuracy={"clean": 0.8, "auto": 0.1})]
    assert ranks(ties) == {"gcn": "1", "grand": "1", "gat": "3"}


def test_other_targets_are_on_no_board() -> None:
    hard = {"difficulty": "hard", "accuracy": {"clean": 0.9, "auto": 0.0}}
    others = [of | hard | {"run": f"{of['run']} hard"} for of in (MLP, GUARD)]
    assert rows([*others, *RECORDS]) == rows(RECORDS)


def test_models_alike_at_the_largest_budget_differ_by_their_curves() -> None:
    lower, higher = curve(GUARD, 0.7, 0.6, 0.2, 0.1, 0.0), curve(FLOW, 0.7, 0.6, 0.3, 0.1, 0.0)
    found = rows([*ON_GRID, *lower, *higher])
    assert [row["rank"] for row in found.values()] == ["control", "1", "2"]
    # By hand: 20, 50, 200, 250 and 2,500 edges; heights 10, 0, -30, -50, -60.
    assert found["beltrami"]["above MLP"] == "−31.44"
    at_one = ranks([*ON_GRID, *lower, *higher], [(50, 50)])
    assert at_one == {"mlp": "control", "beltrami": "1", "gnn_guard": "1"}


def test_a_curve_is_of_the_seeds_that_have_it_whole() -> None:
    whole = curve(GUARD, 0.7, 0.6, 0.3, 0.1, 0.0)
    further = within(50, 50, GUARD | {"seed": 1, "run": "further"}, 0.5)
    row = rows([*ON_GRID, *whole, further])["gnn_guard"]
    assert (row["seeds"], row["50x50"], row["rank"]) == ("1", "0.00", "1")
    row = rows([*ON_GRID, *whole[1:], further])["gnn_guard"]
    assert (row["seeds"], row["5x4"], row["50x50"]) == ("2", "-", "25.00")
    assert (row["rank"], row["above MLP"]) == ("budgets missing", "-")


@pytest.mark.parametrize(("worst", "expected"), [(0.05, [5, 5]), (0.25, [20, 10])])
def test_a_smaller_attack_lowers_every_budget_that_holds_it(
    worst: float, expected: list[float]
) -> None:
    whole = curve(GUARD, 0.7, 0.6, 0.3, 0.2, 0.1)
    row = rows([*ON_GRID, *whole, within(5, 40, GUARD, worst)])["gnn_guard"]
    values = [float(row[f"{nodes}x{edges}"]) for nodes, edges in GRID]
    assert values == pytest.approx([70, 60, 30, *expected])


def test_budgets_off_the_grid_are_shown_if_there_are_no_others() -> None:
    others = [within(nodes, 20, of) for nodes in (3, 5) for of in (MLP, GUARD)]
    assert {"3x20", "5x20"} <= rows(others)["mlp"].keys()
    assert "3x20" not in rows([*others, *(within(5, 4, of) for of in (MLP, GUARD))])["mlp"]
    assert show_leaderboard(others, [(1, 1)]) == []


def test_what_has_faced_less_is_left_out() -> None:
    left_out = [
        record("gin", accuracy={"clean": 0.8, "pgd": 0.79}),
        record("gcn", "black_box", accuracy={"clean": 0.8, "auto": 0.79}),
        record("gat", run="a", scale="smoke", accuracy={"clean": 0.8, "auto": 0.79}),
        record("gat") | {"error": "no data"},
        within(0, 50, record("gin"), 0.7),  # a modification injects no node
    ]
    assert ranks([GUARD, *left_out]) == {"gnn_guard": "1"}
    other = record("gat", experiment="t-end", accuracy={"clean": 0.8, "auto": 0.79})
    assert ranks([GUARD, other])["gat"] == "1"  # whichever experiment ran it
