import re
from dataclasses import replace

import pytest

from robust_diffusion.records.records import Record
from robust_diffusion.results.leaderboard.board import boards, published, render
from robust_diffusion.results.leaderboard.check import Entry
from tests.results.leaderboard.reports import entry, record

MLP = record("mlp", accuracy={"clean": 0.6, "auto": 0.6})
GUARD = record("gnn_guard", accuracy={"clean": 0.8, "auto": 0.7})
FLOW = record("graph_pde", flow="beltrami", accuracy={"clean": 0.8, "auto": 0.2})
FLAGGED = record("gat", accuracy={"clean": 0.8, "auto": 0.75}, flags={"auto": ["zero_gradient"]})
SINGLE = record("gin", accuracy={"clean": 0.8, "pgd": 0.79})
PAGE = "leaderboard.html"
RECORDS = [FLOW, FLAGGED, MLP, GUARD]


def told(records: list[Record], *reports: Entry) -> list[tuple[str, int | None, str]]:
    (board,) = boards(published(records), list(reports))
    return [(row.model, row.rank, row.state) for row in board.rows]


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


def test_what_has_faced_less_is_left_out() -> None:
    transferred = record("gcn", "black_box", accuracy={"clean": 0.8, "auto": 0.79})
    smoke = record("gat", cell="a", scale="smoke", accuracy={"clean": 0.8, "auto": 0.79})
    other = record("gat", cell="b", experiment="t-end", accuracy={"clean": 0.8, "auto": 0.79})
    failed = record("gat") | {"error": "no data"}
    assert told([GUARD, SINGLE, transferred, smoke, failed]) == [("gnn_guard", 1, "ranked")]
    assert told([GUARD, other])[0] == ("gat", 1, "ranked")  # whichever experiment ran it


def test_a_report_that_does_more_lowers_a_model_and_is_named() -> None:
    better = GUARD | {"cell": "report", "accuracy": {"clean": 0.8, "new": 0.25}}
    (board,) = boards(published(RECORDS), [entry([better])])
    row = next(row for row in board.rows if row.model == "gnn_guard")
    assert (row.worst, row.rank, row.by) == (25.0, 1, "new (white box)")
    assert row.sources == ["published records", "report mine: seed 0 by new (white box), 25.00 %"]
    assert row.above_mlp == pytest.approx(-35)
    worse = better | {"accuracy": {"clean": 0.8, "new": 0.75}}
    (board,) = boards(published(RECORDS), [entry([worse])])
    row = next(row for row in board.rows if row.model == "gnn_guard")
    assert (row.worst, row.sources) == (70.0, ["published records"])
    assert "white box: auto, new" in row.attacks


def test_a_model_of_the_users_is_ranked_if_it_was_trained_and_attacked_here() -> None:
    own = record("Mine", cell="own", fidelity="own")
    declared = entry([own], training="seed=3")
    assert ("Mine", 2, "ranked") in told(RECORDS, declared)
    (board,) = boards(published(RECORDS), [declared])
    row = next(row for row in board.rows if row.variant == "own")
    assert (row.sources, row.above_mlp) == (
        ["report mine, trained by seed=3"],
        pytest.approx(-10),
    )
    assert ("Mine", None, "training not checked") in told(RECORDS, entry([own]))
    named_so = own | {"accuracy": {"clean": 0.8, "auto, reported": 0.7}}
    assert ("Mine", None, "claimed") in told(RECORDS, entry([named_so], training="seed=3"))


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    page = render(boards(published(RECORDS), [replace(entry(), reason="<script>")]))[PAGE]
    assert "&lt;b&gt;Mine" in page
    assert not re.search(r"<script|<link|https?:|url\(|@import|<b>Mine| src=", page)
    order = [page.index(f">{name} <small") for name in ("gnn_guard", "mlp", "beltrami", "gat")]
    assert order == sorted(order)
    for shown in ("+10.00", "−40.00", "not a bound", "zero_gradient", "not checked"):
        assert shown in page
    assert "No model yet" in render([])[PAGE]
