import re
from dataclasses import asdict, replace

import pytest

from robust_diffusion.records.records import Record
from robust_diffusion.results.leaderboard.board import Row, boards, published, render
from robust_diffusion.results.leaderboard.grid import GRID, Grid, area, points_of
from tests.results.leaderboard.reports import record
from tests.zoo import BUDGET

MLP = record("mlp", accuracy={"clean": 0.6, "auto": 0.6})
GUARD = record("gnn_guard", accuracy={"clean": 0.8, "auto": 0.7})
FLOW = record("graph_pde", flow="beltrami", accuracy={"clean": 0.8, "auto": 0.2})
FLAGGED = record("gat", accuracy={"clean": 0.8, "auto": 0.75}, flags={"auto": ["zero_gradient"]})
SINGLE = record("gin", accuracy={"clean": 0.8, "pgd": 0.79})
PAGE = "leaderboard.html"
RECORDS = [FLOW, FLAGGED, MLP, GUARD]


def rows(records: list[Record], grid: Grid | None = None) -> dict[str, Row]:
    (board,) = boards(published(records), grid)
    return {row.model: row for row in board.rows}


def told(records: list[Record]) -> list[tuple[str, int | None, str]]:
    return [(row.model, row.rank, row.state) for row in rows(records).values()]


def within(nodes: int, edges: int, made: Record, worst: float = 0.0) -> Record:
    """The record at another budget."""
    budget = replace(BUDGET, max_injected_nodes=nodes, max_edges_per_injected_node=edges)
    return made | {
        "cell": f"{made['cell']} {nodes}x{edges}",
        "budget": {"declared": asdict(budget)},
        "accuracy": made["accuracy"] | {"auto": worst},
    }


def curve(made: Record, *worst: float) -> list[Record]:
    points = sorted(GRID, key=lambda point: point[0] * point[1])
    return [within(*point, made, of) for point, of in zip(points, worst, strict=True)]


ON_GRID = curve(MLP, 0.6, 0.6, 0.6, 0.6, 0.6)


def test_models_stand_above_and_below_the_mlp() -> None:
    assert told(RECORDS) == [
        ("gnn_guard", 1, "ranked"),
        ("mlp", None, "control"),
        ("beltrami", 2, "ranked"),
        ("gat", None, "not a bound"),
    ]
    same = [record(name) for name in ("gcn", "grand")]
    last = record("gat", accuracy={"clean": 0.8, "auto": 0.1})
    assert [rank for _, rank, _ in told([*same, last])] == [1, 1, 3]


def test_other_targets_are_on_no_board() -> None:
    hard = {"difficulty": "hard", "accuracy": {"clean": 0.9, "auto": 0.0}}
    others = [of | hard | {"cell": f"{of['cell']} hard"} for of in (MLP, GUARD)]
    assert told([*others, *RECORDS]) == told(RECORDS)


def test_models_alike_at_the_largest_budget_are_told_apart_by_their_curves() -> None:
    lower = curve(GUARD, 0.7, 0.6, 0.2, 0.1, 0.0)
    higher = curve(FLOW, 0.7, 0.6, 0.3, 0.1, 0.0)
    found = rows([*ON_GRID, *lower, *higher])
    assert [(row.model, row.rank) for row in found.values()] == [
        ("mlp", None),
        ("beltrami", 1),
        ("gnn_guard", 2),
    ]
    points = [(5, 4), (1, 50), (50, 4), (5, 50), (50, 50)]
    assert found["beltrami"].above_mlp == pytest.approx(area(points, [10, 0, -30, -50, -60]))
    at_one = rows([*ON_GRID, *lower, *higher], [(50, 50)])
    assert [row.above_mlp for row in at_one.values()] == [0, pytest.approx(-60), pytest.approx(-60)]
    assert [row.rank for row in at_one.values()] == [None, 1, 1]


def test_a_curve_is_of_the_seeds_that_have_it_whole() -> None:
    whole = curve(GUARD, 0.7, 0.6, 0.3, 0.1, 0.0)
    further = within(50, 50, GUARD | {"seed": 1, "cell": "further"}, 0.5)
    row = rows([*ON_GRID, *whole, further])["gnn_guard"]
    assert (row.seeds, row.curve[-1], row.state) == (1, 0, "ranked")
    row = rows([*ON_GRID, *whole[1:], further])["gnn_guard"]
    assert (row.seeds, row.curve[0], row.curve[-1]) == (2, None, 25)
    assert (row.state, row.rank, row.above_mlp) == ("budgets missing", None, None)


def test_a_graph_of_less_lowers_every_budget_that_holds_it() -> None:
    whole = curve(GUARD, 0.7, 0.6, 0.3, 0.2, 0.1)
    less = within(5, 40, GUARD, 0.05)
    row = rows([*ON_GRID, *whole, less])["gnn_guard"]
    assert row.curve == pytest.approx([70, 60, 30, 5, 5])
    row = rows([*ON_GRID, *whole, within(5, 40, GUARD, 0.25)])["gnn_guard"]
    assert row.curve == pytest.approx([70, 60, 30, 20, 10])


def test_the_budgets_of_a_board() -> None:
    budgets = [replace(BUDGET, max_injected_nodes=nodes) for nodes in (3, 5)]
    assert points_of(budgets) == [(3, 20), (5, 20)]  # none is of the grid
    small = replace(BUDGET, max_edges_per_injected_node=4)
    assert points_of([*budgets, small]) == [(5, 4)]
    assert points_of([*budgets, small], [(3, 20)]) == [(3, 20)]
    assert points_of(budgets, [(1, 1)]) == []
    assert area([(1, 1), (1, 10), (1, 1000)], [3, 3, 0]) == pytest.approx(2)


def test_what_has_faced_less_is_left_out() -> None:
    transferred = record("gcn", "black_box", accuracy={"clean": 0.8, "auto": 0.79})
    smoke = record("gat", cell="a", scale="smoke", accuracy={"clean": 0.8, "auto": 0.79})
    other = record("gat", cell="b", experiment="t-end", accuracy={"clean": 0.8, "auto": 0.79})
    failed = record("gat") | {"error": "no data"}
    flipped = within(0, 50, record("gin"), 0.7)  # a modification injects no node
    assert told([GUARD, SINGLE, transferred, smoke, failed, flipped]) == [
        ("gnn_guard", 1, "ranked")
    ]
    assert told([GUARD, other])[0] == ("gat", 1, "ranked")  # whichever experiment ran it


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    own = record("<b>Mine</b>", cell="own", fidelity="own")
    page = render(boards(published([*RECORDS, own])))[PAGE]
    assert "&lt;b&gt;Mine" in page
    assert not re.search(r"<script|<link|https?:|url\(|@import|<b>Mine| src=", page)
    order = [page.index(f">{name} <small") for name in ("gnn_guard", "mlp", "beltrami", "gat")]
    assert order == sorted(order)
    for shown in ("+10.00", "−40.00", "not a bound", "zero_gradient"):
        assert shown in page
    assert "No model yet" in render([])[PAGE]
