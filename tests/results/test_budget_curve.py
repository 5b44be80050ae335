"""Worst case against budget, from records of several budgets."""

from typing import Any

import pytest

from robust_diffusion.results.budget_curve import budget_without_effect, show_budgets
from tests.results.worst_cases import record


def curve(model: str, accuracies: dict[int, float], **options: Any) -> list[dict[str, Any]]:
    """One record per number of injected nodes."""
    return [
        record(model, budget=(nodes, 4), auto=accuracy, **options)
        for nodes, accuracy in accuracies.items()
    ]


MLP = curve("mlp", {1: 0.6, 50: 0.6}, clean=0.6)
STALLED = curve("gnn_guard", {1: 0.75, 50: 0.745}) + curve("gnn_guard", {1: 0.7, 50: 0.2}, seed=1)


@pytest.mark.parametrize(
    ("last", "stalls"),
    [(0.6, True), (0.3, False), (0.0, False)],
)
def test_budget_without_effect(last: float, *, stalls: bool) -> None:
    first = 0.6 if last else 0.0  # nothing is left to lose
    assert bool(budget_without_effect([(50, last), (1, first)])) == stalls


def test_a_curve_that_stalls_is_no_bound_and_never_bold() -> None:
    table = show_budgets([*MLP, *STALLED])
    row = table.cells.set_index("model").loc["gnn_guard"]
    assert (row["1"], row["seeds"]) == ("72.50 ± 3.54 !", "2")
    assert row["50"].endswith(" !")
    assert table.notes == [
        "! gnn_guard, 4 edges each: not a bound: budget_without_effect: "
        "75.00 % with 1 injected, 74.50 % with 50 (seed 0)"
    ]
    assert not show_budgets(MLP).notes  # which nothing hurts
