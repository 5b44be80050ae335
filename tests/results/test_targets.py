"""Worst cases by the nodes under attack."""

from typing import Any

from robust_diffusion.results.targets import show_targets


def record(model: str, difficulty: str, clean: float, worst: float) -> dict[str, Any]:
    budget = {"max_injected_nodes": 5, "max_edges_per_injected_node": 20}
    named = {"run": f"{model} {difficulty}", "model": model, "difficulty": difficulty, "seed": 0}
    graph = {"dataset": "cora", "fidelity": "paper", "threat": "white_box", "split": "a"}
    accuracy = {"clean": clean, "auto": worst}
    return named | graph | {"budget": {"declared": budget}, "accuracy": accuracy}


def test_rankings_at_other_targets_are_told_by_kendalls_tau() -> None:
    easy = [record(model, "easy", 0.9 - i / 10, 0.1 * i) for i, model in enumerate("abc")]
    hard = [record(model, "hard", 0.5 - i / 10, 0.3 - 0.1 * i) for i, model in enumerate("abc")]
    table = show_targets([*easy, *hard, {**hard[0], "run": "x", "error": "no memory"}])
    cells = table.cells.set_index("model")
    assert list(cells.index) == ["a", "b", "c", "Kendall's tau"]
    assert cells.loc["a", "easy"] == "90.0 to 0.0"
    assert cells.loc["c", "hard"] == "30.0 to 10.0"
    assert list(cells.loc["Kendall's tau"])[1:] == ["1.00 to 1.00", "1.00 to −1.00"]


def test_flags_are_told_and_no_cell_is_no_error() -> None:
    flagged = record("a", "easy", 0.9, 0.4) | {"flags": {"auto": ["zero_gradient"]}}
    table = show_targets([flagged])
    assert table.cells["easy"][0] == "90.0 to 40.0 !"
    assert table.notes == ["! a, easy: not a bound: zero_gradient"]
    assert show_targets([flagged | {"error": "no memory"}]).cells.empty
