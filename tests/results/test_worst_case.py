"""One worst case per model, from records of several threat models."""

import math
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_diffusion.records.record import Record
from robust_diffusion.results.comparison import compare_worst_cases
from robust_diffusion.results.frame import frame
from robust_diffusion.results.show import show
from robust_diffusion.results.worst_case import (
    SHOWN,
    recorded_on,
    show_worst_cases,
    worst_case_table,
    worst_cases,
)
from tests.results.worst_cases import NEW, OLD, record, trained_for
from tests.tables import rows_of


def tried(records: list[dict[str, Any]], model: str = "gcn") -> list[dict[str, Any]]:
    """What was tried on each trained model of one name."""
    models = worst_cases(frame(records))
    return models[models["model"] == model].to_dict("records")  # type: ignore[return-value]


def lowest(found: dict[str, Any]) -> dict[str, float]:
    """Accuracies of what was tried, each transfer by its surrogates."""
    own = {kind: found[kind] for kind in SHOWN if kind != "transfer" and found[kind] >= 0}
    return own | {f"transfer {name}": value for name, value in found["transfers"].items()}


def table(records: list[dict[str, Any]]) -> pd.DataFrame:
    return worst_case_table(worst_cases(frame(records)))


MLP = [record("mlp", "black_box", seed, clean=0.6, speit=0.6) for seed in (0, 1)]
FLOW = [
    record("graph_pde", "black_box", 0, "beltrami", speit=0.61, random=0.75),
    record("graph_pde", "white_box", 0, "beltrami", auto=0.4),
    record("graph_pde", "adaptive", 0, "beltrami", auto=0.3),
    record("graph_pde", "adaptive", 1, "beltrami", auto=0.2),
]


def test_worst_case_is_the_lowest_of_all() -> None:
    other_weights = record("graph_pde", "black_box", 0, "beltrami", clean=0.7, tdgia=0.65)
    found = tried([*FLOW, other_weights], "beltrami")[0]
    every = {"clean": 0.8, "chance": 0.75, "transfer ": 0.61, "white_box": 0.4, "adaptive": 0.3}
    assert lowest(found) == every | {"worst": 0.3}
    assert (found["by"], found["flags"]) == ("auto (adaptive)", frozenset())


def test_accuracy_above_the_mlp_is_paired() -> None:
    found = table([*MLP, *FLOW]).set_index("model")
    assert dict(found["above_mlp"]) == pytest.approx({"mlp": 0, "beltrami": -35})
    assert found.loc["beltrami", "seeds"] == 2
    assert math.isnan(table(FLOW)["above_mlp"].iloc[0])  # without a control


def test_an_mlp_that_was_attacked_less_is_a_control_all_the_same() -> None:
    models = [record("gcn", seed=seed, auto=0.4) for seed in (0, 1)]
    mlps = [record("mlp", seed=0, clean=0.6, auto=0.6)]
    mlps += [record("mlp", "black_box", seed=1, clean=0.5, auto=0.5)]
    found = table([*models, *mlps]).set_index("model")
    assert found.loc["gcn", "above_mlp"] == pytest.approx(-15)


def test_the_best_of_several_mlps_is_the_control() -> None:
    weaker = trained_for(record("mlp", "black_box", clean=0.5, speit=0.5), 10)
    adversary = record("mlp", "black_box", clean=0.7, speit=0.7)
    training = {"adversary": {"_target_": "robust_diffusion.attacks.InjectionAdversary"}}
    adversary |= {"run": "a", "config": adversary.config.whole | {"training": training}}
    cells = show_worst_cases(frame([MLP[0], weaker, adversary, FLOW[2]])).cells.set_index("model")
    assert dict(cells["above MLP"]) == pytest.approx(
        {
            "mlp, adversary": 10,
            "mlp, training.max_epochs=5000": 0,
            "mlp, training.max_epochs=10": -10,
            "beltrami": -30,
        }
    )


FLAGS = ("stochastic", "zero_gradient", "no_effect", "solvers_disagree")


@settings(max_examples=4)
@given(st.data())
def test_the_order_of_records_decides_nothing(data: st.DataObject) -> None:
    """Ties of records that are flagged and that are not, for several models and seeds."""
    cells = [
        record(model, threat, seed, clean=0.8, **{attack: data.draw(st.sampled_from([0.1, 0.5]))})
        | {"flags": {of: [data.draw(st.sampled_from(FLAGS))] for of in data.draw(flagged)}}
        for model in ("gcn", "mlp")
        for seed in (0, 1)
        for threat, attack in (("white_box", "auto"), ("white_box", "pgd"), ("black_box", "auto"))
    ]
    shuffled = data.draw(st.permutations(cells))
    pd.testing.assert_frame_equal(table(cells), table(shuffled), check_exact=True)
    for cell in cells:  # nothing that the lowest accuracy depends on is lost
        (model,) = (m for m in tried(shuffled, cell.model) if m["seed"] == cell.seed)
        own = set(cell.flags.get("victim", []))
        if model["worst"] in cell.accuracy.values():
            flags = {f for attack in cell.accuracy for f in cell.flags.get(attack, [])}
            own |= flags
        assert own <= model["flags"]


flagged = st.sets(st.sampled_from(["auto", "pgd", "victim"]))


def test_a_mean_is_over_models_that_were_attacked_as_thoroughly() -> None:
    cells = [
        *(record("gcn", "black_box", seed, auto=0.5, clean=0.7) for seed in range(4)),
        *(record("gcn", "white_box", seed, auto=0.1, clean=0.7) for seed in range(1, 4)),
        record("gcn", "white_box", 5, auto=0.2, clean=0.9),
        record("gcn", "white_box", 6, pgd=0.0, clean=0.9),
    ]
    (row,) = table(cells).to_dict("records")
    assert (row["seeds"], row["fewer"]) == (4, {"chance": 0, "transfer": 3, "adaptive": 0})
    assert [row[k] for k in ("clean", "transfer", "white_box", "worst")] == pytest.approx(
        [75, 50, 12.5, 12.5]
    )
    assert rows_of(show(show_worst_cases(frame(cells))))[0]["transfer"] == "50.00 (n=3)"


def twin(same: list[str]) -> dict[str, Any]:
    """GCN under a black box of a GCN, which may have the same weights, and a flow."""
    cell = record("gcn", "black_box", 0, clean=0.8, auto=0.1)
    return cell | {
        "run": f"{cell.run}{same}",
        "surrogates": ["gcn", "graph_pde"],
        "attacked": {"gcn": {"clean": 0.8, "auto": 0.1}, "graph_pde": {"clean": 0.7, "auto": 0.2}},
        "mean_accuracy": {"clean": 0.8, "auto": 0.25},
        "config": {"model": {}, "threat": {"surrogates": {"gcn": {}, "graph_pde": {}}}},
        "same_weights": same,
    }


def test_a_surrogate_with_the_models_weights_is_no_transfer() -> None:
    (found,) = tried([twin(["gcn"])])
    transfer = {f"transfer graph_pde; auto {NEW}": 0.4}
    assert lowest(found) == pytest.approx({"clean": 0.8, "white_box": 0.1, "worst": 0.1} | transfer)
    other, old = twin([]), twin(["gcn"]) | OLD
    newest = f"gcn, graph_pde; auto {NEW}"
    assert lowest(tried([other])[0])[f"transfer {newest}"] == 0.1
    for beside in (old, twin(["gcn"])):
        (row,) = table([beside, other]).to_dict("records")
        assert (row["transfer"], row["surrogates"]) == (pytest.approx(10), newest)
    (row,) = table([old]).to_dict("records")
    assert row["surrogates"] == "graph_pde; auto 4"


def test_worst_cases_averages_only_seeds_of_the_newest_auto() -> None:
    cells = [record("gcn", "white_box", seed, auto=0.1 + 0.1 * seed) for seed in range(5)]
    cells = [cell | OLD if cell.seed > 1 else cell for cell in cells]
    line = [record("mlp", "white_box", seed, clean=0.6, auto=0.6) | OLD for seed in (0, 1)]
    row = table([*cells, *line]).set_index("model").loc["gcn"]
    assert (row["seeds"], row["tried"], row["version"]) == (2, 5, NEW)
    assert [row["worst"], row["above_mlp"]] == pytest.approx([15, -45])
    shown = {row["model"]: row for row in rows_of(show(show_worst_cases(frame([*cells, *line]))))}
    assert (shown["gcn"]["seeds"], shown["gcn"]["auto"]) == ("2 of 5", str(NEW))
    # An older version that did more on the same seed still counts as an attack.
    also = record("gcn", "white_box", 0, auto=0.0, pgd=0.7) | OLD
    assert table([*cells, also])["worst"].iloc[0] == pytest.approx(10)


def test_flags_of_the_worst_attack_count() -> None:
    cell = record("gcn", "white_box", auto=0.5, speit=0.7)
    cell |= {"flags": {"auto": ["stochastic"], "speit": ["no_effect"]}}
    (row,) = table([cell]).to_dict("records")
    assert (row["flags"], row["bound"]) == ("stochastic", False)
    leak = cell | {"flags": {}, "config": {"data": {"degree_leak": True}}}
    assert tried([leak])[0]["flags"] == {"degree_leak"}
    lost = cell | {"accuracy": {"clean": 0.8, "auto": 0.0}}
    assert table([lost])["bound"].iloc[0]  # nothing is left to lose


def test_budgets_are_not_mixed() -> None:
    small = record("gcn", "white_box", budget=(5, 4), auto=0.5)
    line = record("mlp", "white_box", budget=(5, 4), clean=0.4, auto=0.4)
    found = table([*MLP, line, small, record("gcn", "white_box", auto=0.1)])
    gcn = found[found["model"] == "gcn"]
    assert list(zip(gcn["nodes"], gcn["edges"], strict=True)) == [(5, 4), (50, 50)]
    assert list(gcn["worst"]) == pytest.approx([50, 10])
    assert list(gcn["above_mlp"]) == pytest.approx([10, -50])
    assert [*show_worst_cases(frame([*MLP, small])).cells][:2] == ["budget", "model"]


def test_parts_of_an_attack_tell_white_box_from_adaptive() -> None:
    cell = record("gnn_guard", "white_box", auto=0.1)
    cell |= {"parts": {"auto": {"search: equal": 0.7, "white box: a": 0.6, "adaptive: a": 0.1}}}
    (found,) = tried([cell], "gnn_guard")
    assert lowest(found) == {"clean": 0.8, "white_box": 0.6, "adaptive": 0.1, "worst": 0.1}
    assert found["by"] == "auto (adaptive: a)"


def with_feature_limits(run: Record, most: float) -> Record:
    """The same run whose attacks may write other features."""
    budget = run.budget.bounds | {"feature_limits": [-most, most]}
    return run | {"run": f"{run.run} {most}", "budget": budget}


def test_budgets_that_read_the_same_are_told_apart_by_what_differs() -> None:
    runs = [record(model, auto=0.4) for model in ("gcn", "gat")]
    both = [with_feature_limits(run, most) for run in runs for most in (0.5, 5.0)]
    elsewhere = [run | {"dataset": "citeseer", "run": f"{run.run} there"} for run in runs]
    for shown in (show_worst_cases(frame(both)), compare_worst_cases(frame(both), "gcn", "gat")):
        (few, more) = shown.cells["budget"].unique()
        assert few == "50 nodes, 50 edges each, feature_limits=(-0.5, 0.5)"
        assert more == "50 nodes, 50 edges each, feature_limits=(-5.0, 5.0)"
    assert "budget" not in show_worst_cases(frame([*both[::2], *elsewhere])).cells


def test_a_table_of_modifications_names_what_they_may_spend() -> None:
    cells = [
        record(model, threat, budget=(0, 0), **found)
        for model, threat, found in (
            ("mlp", "white_box", {"clean": 0.6, "auto_modification": 0.6}),
            ("gcn", "black_box", {"random_flip": 0.7}),
            ("gcn", "white_box", {"auto_modification": 0.1}),
        )
    ]
    cells = [cell | {"budget": cell.budget.bounds | {"edge_ratio": 0.2}} for cell in cells]
    shown = show_worst_cases(frame(cells))
    assert "0.2 of their edges" in shown.caption
    row = shown.cells.set_index("model").loc["gcn"]
    columns = ["random flips", "white box", "above MLP"]
    assert [row[name] for name in columns] == pytest.approx([70, 10, -50])
    assert {*recorded_on(frame(cells))["model"]} == {"mlp", "gcn"}


@pytest.mark.parametrize("option", ["poisoning", "mine"])
def test_poisoning_enters_no_worst_case_of_evasion(option: str) -> None:
    evasion = record("gcn", auto_modification=0.5)
    poisoned = record("gcn", option, clean=0.8, metattack=0.2, auto_modification=0.1)
    target = "robust_diffusion.evaluation.Poisoning"
    poisoned |= {"config": poisoned.config.whole | {"threat": {"_target_": target}}}
    both = [evasion, poisoned]
    assert show_worst_cases(frame(both)).cells["worst"].tolist() == [50]
    recorded = recorded_on(frame(both), {"worst-case"})
    assert list(worst_cases(recorded)["worst"]) == [0.5]
    assert tried([poisoned])[0]["clean"] == 0.8
