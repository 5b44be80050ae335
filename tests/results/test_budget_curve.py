"""Worst case against budget, from records of several budgets."""

from typing import Any

import pytest

from robust_diffusion.results.budget_curve import budget_curve, budget_without_effect, show_budgets
from tests.results.worst_cases import record


def curve(
    model: str, accuracies: dict[int, float], *, seed: int = 0, edges: int = 4, **options: Any
) -> list[dict[str, Any]]:
    """One record per number of injected nodes."""
    return [
        record(model, "white_box", seed, budget=(nodes, edges), auto=accuracy, **options)
        for nodes, accuracy in accuracies.items()
    ]


MLP = curve("mlp", {1: 0.6, 50: 0.6}, clean=0.6)
GCN = curve("gcn", {1: 0.7, 50: 0.1})
STALLED = curve("gnn_guard", {1: 0.75, 50: 0.745}) + curve("gnn_guard", {1: 0.7, 50: 0.2}, seed=1)


def rows(records: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, str]]:
    """Rows by edges and model."""
    cells = show_budgets(records).cells
    return {(row["edges"], row["model"]): row for row in cells.to_dict("records")}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("last", "stalls"),
    [(0.6, True), (0.3, False), (0.0, False)],
)
def test_budget_without_effect(last: float, *, stalls: bool) -> None:
    first = 0.6 if last else 0.0  # nothing is left to lose
    assert bool(budget_without_effect([(50, last), (1, first)])) == stalls


def test_entry_is_the_lowest_of_the_attacks_at_one_budget() -> None:
    chance = record("gcn", "white_box", budget=(50, 4), random=0.05)
    (few, many) = budget_curve([*GCN, chance]).to_dict("records")
    assert (few["nodes"], few["worst"]) == (1, pytest.approx(70))
    assert (many["nodes"], many["worst"], many["chance"]) == (50, pytest.approx(5), 5)


def test_a_graph_of_fewer_nodes_is_within_the_larger_budget() -> None:
    row = rows([*MLP, *curve("gcn", {1: 0.7, 5: 0.2, 50: 0.3})])["4", "gcn"]
    assert (row["1"], row["5"], row["50"]) == ("**70.00**", "20.00", "20.00")


def test_a_curve_that_stalls_is_no_bound_and_never_bold() -> None:
    row = rows([*MLP, *STALLED])["4", "gnn_guard"]
    assert (row["1"], row["seeds"]) == ("72.50 ± 3.54 !", "2")
    assert row["50"].endswith(" !")
    assert not show_budgets(MLP).notes  # which nothing hurts
    assert show_budgets([*MLP, *STALLED]).notes == [
        "! gnn_guard, 4 edges each: not a bound: budget_without_effect: "
        "75.00 % with 1 injected, 74.50 % with 50 (seed 0)"
    ]
