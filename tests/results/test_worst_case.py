"""One worst case per model, from records of several threat models."""

import math
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_diffusion.attacks import Budget
from robust_diffusion.results.worst_case import (
    Draw,
    ModelOnSplit,
    show_worst_cases,
    worst_case_table,
    worst_cases,
)


def record(
    model: str,
    threat: str,
    seed: int = 0,
    flow: str | None = None,
    budget: tuple[int, int] = (50, 50),
    **accuracy: float,
) -> dict[str, Any]:
    limits = {"max_injected_nodes": budget[0], "max_edges_per_injected_node": budget[1]}
    return {
        "cell": f"{model}-{flow}-{threat}-{seed}-{budget}-{sorted(accuracy)}",
        "dataset": "cora",
        "fidelity": "paper",
        "model": model,
        "flow": flow,
        "threat": threat,
        "seed": seed,
        "split": "grb",
        "budget": {"declared": {**limits, "feature_limits": [-1.0, 1.0]}},
        "accuracy": {"clean": accuracy.pop("clean", 0.8), **accuracy},
    }


def tried(records: list[dict[str, Any]], model: str) -> dict[Draw, ModelOnSplit]:
    """Everything that was tried on one model."""
    (found,) = (drawn for key, drawn in worst_cases(records).items() if key.model == model)
    return found


MLP = [record("mlp", "black_box", seed, clean=0.6, speit=0.6) for seed in (0, 1)]
FLOW = [
    record("graph_pde", "black_box", 0, "beltrami", speit=0.61, random=0.75),
    record("graph_pde", "white_box", 0, "beltrami", auto=0.4),
    record("graph_pde", "adaptive", 0, "beltrami", auto=0.3),
    record("graph_pde", "adaptive", 1, "beltrami", auto=0.2),
]


def test_worst_case_is_the_lowest_of_all() -> None:
    found = tried(FLOW, "beltrami")
    assert found[0, "grb"].lowest == {
        "clean": 0.8,
        "chance": 0.75,
        "transfer": 0.61,
        "white_box": 0.4,
        "adaptive": 0.3,
        "worst": 0.3,
    }
    assert found[0, "grb"].attack == "auto (adaptive)"


def test_accuracy_above_the_mlp_is_paired() -> None:
    table = worst_case_table([*MLP, *FLOW]).set_index("model")
    assert table.loc["beltrami", "above_mlp"] == pytest.approx(-35)
    assert table.loc["beltrami", "seeds"] == 2
    assert table.loc["mlp", "above_mlp"] == pytest.approx(0)
    assert list(table.index) == ["mlp", "beltrami"]


def test_without_a_control_nothing_is_above_it() -> None:
    assert math.isnan(worst_case_table(FLOW)["above_mlp"].iloc[0])


FLAGS = ("stochastic", "zero_gradient", "no_effect", "solvers_disagree")


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_the_order_of_records_decides_nothing(data: st.DataObject) -> None:
    """Ties of records that are flagged and that are not, for several models and seeds."""
    cells = [
        record(model, threat, seed, clean=0.8, **{attack: data.draw(st.sampled_from([0.1, 0.5]))})
        | {"flags": {of: [data.draw(st.sampled_from(FLAGS))] for of in data.draw(flagged)}}
        for model in ("gcn", "gat", "mlp")
        for seed in (0, 1)
        for threat, attack in (("white_box", "auto"), ("white_box", "pgd"), ("black_box", "auto"))
    ]
    flagged_cells = [tried(cells, model) for model in ("gcn", "gat", "mlp")]
    shuffled = data.draw(st.permutations(cells))
    assert [tried(shuffled, model) for model in ("gcn", "gat", "mlp")] == flagged_cells
    tables = [worst_case_table(of).drop(columns="fewer") for of in (cells, shuffled)]
    pd.testing.assert_frame_equal(*tables, check_exact=True)
    for cell in cells:  # nothing that the lowest accuracy depends on is lost
        (model,) = (m for d, m in tried(cells, cell["model"]).items() if d[0] == cell["seed"])
        own = set(cell["flags"].get("victim", []))
        if model.lowest["worst"] in cell["accuracy"].values():
            own |= {f for attack in cell["accuracy"] for f in cell["flags"].get(attack, [])}
        assert own <= model.flags


flagged = st.sets(st.sampled_from(["auto", "pgd", "victim"]))


def test_a_mean_is_over_models_that_were_attacked_as_thoroughly() -> None:
    cells = [
        *(record("gcn", "black_box", seed, auto=0.5, clean=0.7) for seed in range(4)),
        *(record("gcn", "white_box", seed, auto=0.1, clean=0.7) for seed in range(1, 4)),
        record("gcn", "white_box", 5, auto=0.2, clean=0.9),
        record("gcn", "white_box", 6, pgd=0.0, clean=0.9),
    ]
    (row,) = worst_case_table(cells).to_dict("records")
    assert (row["seeds"], row["fewer"]) == (4, {"chance": 0, "transfer": 3, "adaptive": 0})
    assert [row[k] for k in ("clean", "transfer", "white_box", "worst")] == pytest.approx(
        [75, 50, 12.5, 12.5]
    )
    assert show_worst_cases(cells).cells["transfer"].iloc[0] == "50.00 (n=3)"


def twin(seeding: dict[str, str], seed: int = 0) -> dict[str, Any]:
    """GCN under a black box that trains a GCN of the same configuration, and a flow."""
    gcn, flow = {"_target_": "GCN"}, {"_target_": "GraphPDE"}
    cell = record("gcn", "black_box", seed, clean=0.8, auto=0.1)
    return cell | {
        "cell": f"{cell['cell']}{seeding}",
        "surrogates": ["gcn", "graph_pde"],
        "attacked": {"gcn": {"clean": 0.8, "auto": 0.1}, "graph_pde": {"clean": 0.7, "auto": 0.2}},
        "mean_accuracy": {"clean": 0.8, "auto": 0.25},
        "config": {
            "model": gcn,
            "threat": {"surrogates": {"gcn": gcn, "graph_pde": flow}} | seeding,
        },
    }


def test_a_surrogate_with_the_victims_weights_is_no_transfer() -> None:
    (found,) = tried([twin({})], "gcn").values()
    assert found.lowest == pytest.approx(
        {"clean": 0.8, "white_box": 0.1, "transfer from graph_pde": 0.4, "worst": 0.1}
    )
    other = twin({"seeding": "name"})
    assert tried([other], "gcn")[0, "grb"].lowest["transfer from gcn, graph_pde"] == 0.1
    other["parts"] = {"auto/gcn": {"search: 4 edges a target": 0.1}}
    old = twin({}) | {"parts": {"auto/gcn": {"search": 0.1}}}
    (row,) = worst_case_table([old, other]).to_dict("records")
    assert (row["transfer"], row["surrogates"]) == (pytest.approx(10), "gcn, graph_pde")
    (row,) = worst_case_table([old]).to_dict("records")
    assert row["surrogates"] == "graph_pde; auto without 4 edges per target"


def test_white_box_weaker_than_transfer_is_flagged() -> None:
    weak = [record("gcn", "black_box", speit=0.3), record("gcn", "white_box", auto=0.5)]
    found = tried(weak, "gcn")
    assert found[0, "grb"].flags == {"weaker_than_transfer"}
    assert not tried(FLOW, "beltrami")[0, "grb"].flags


def test_flags_of_the_worst_attack_count() -> None:
    cell = record("gcn", "white_box", auto=0.5, speit=0.7)
    cell["flags"] = {
        "auto": ["stochastic"],
        "speit": ["no_effect"],
    }
    table = worst_case_table([cell])
    assert table["flags"].iloc[0] == "stochastic"
    assert not table["bound"].iloc[0]


def test_model_with_a_flow_of_its_own_goes_by_its_name() -> None:
    found = worst_cases([record("beltrami_guard", "white_box", flow="beltrami", auto=0.5)])
    assert list(found) == [("cora", "paper", "beltrami_guard", Budget(50, 50, (-1.0, 1.0)))]


def test_a_model_trained_against_an_adversary_has_a_row_of_its_own() -> None:
    own = record("graph_pde", "white_box", 0, "beltrami", auto=0.6)
    own |= {"cell": "own", "config": {"training": {"adversary": {"num_steps": 1}}}}
    plain = FLOW[1] | {"config": {"training": {"adversary": {}}}}
    table = worst_case_table([plain, own, *MLP]).set_index("model")
    assert table.loc["beltrami", "worst"] == pytest.approx(40)
    assert table.loc["beltrami, adversary", "worst"] == pytest.approx(60)
    assert table.loc["beltrami, adversary", "above_mlp"] == pytest.approx(0)


def test_budgets_are_not_mixed() -> None:
    small = record("gcn", "white_box", budget=(5, 4), auto=0.5)
    line = record("mlp", "white_box", budget=(5, 4), clean=0.4, auto=0.4)
    table = worst_case_table([*MLP, line, small, record("gcn", "white_box", auto=0.1)])
    gcn = table[table["model"] == "gcn"]
    assert list(zip(gcn["nodes"], gcn["edges"], strict=True)) == [(5, 4), (50, 50)]
    assert list(gcn["worst"]) == pytest.approx([50, 10])
    assert list(gcn["above_mlp"]) == pytest.approx([10, -50])
    assert show_worst_cases([*MLP, small]).keys[:2] == ["budget", "model"]


def test_failures_and_times_are_left_out() -> None:
    failed = record("gcn", "white_box", auto=0.5) | {"error": "no"}
    timed = record("gat", "white_box", auto=0.5) | {"config": {"timing": {"on": "cpu"}}}
    assert worst_case_table([failed, timed]).empty


def test_parts_of_an_attack_tell_white_box_from_adaptive() -> None:
    cell = record("gnn_guard", "white_box", auto=0.1)
    cell["parts"] = {"auto": {"search: equal": 0.7, "white box: a": 0.6, "adaptive: a": 0.1}}
    (found,) = tried([cell], "gnn_guard").values()
    assert found.lowest == {"clean": 0.8, "white_box": 0.6, "adaptive": 0.1, "worst": 0.1}
    assert found.attack == "auto (adaptive: a)"


def test_nothing_left_to_lose_is_a_bound() -> None:
    cell = record("gcn", "white_box", auto=0.0) | {"flags": {"auto": ["zero_gradient"]}}
    assert worst_case_table([cell])["bound"].iloc[0]


def test_degree_leak_is_a_flag() -> None:
    cell = record("gcn", "white_box", auto=0.1) | {"config": {"data": {"degree_leak": True}}}
    assert worst_case_table([cell])["flags"].iloc[0] == "degree_leak"


def test_flagged_model_is_shown_as_no_bound() -> None:
    weak = [record("gcn", "black_box", speit=0.3), record("gcn", "white_box", auto=0.5)]
    shown = show_worst_cases([*MLP, *weak])
    worst = dict(zip(shown.cells["model"], shown.cells["worst"], strict=True))
    assert worst == {"mlp": "60.00 ± 0.00", "gcn": "30.00 !"}
    assert shown.notes == ["! gcn: not a bound: weaker_than_transfer"]
    by = dict(zip(shown.cells["model"], shown.cells["by"], strict=True))
    assert by == {"mlp": "-", "gcn": "speit (transfer)"}
    assert show_worst_cases([]).cells.empty


def test_the_attack_that_most_often_reaches_the_worst_case_is_named() -> None:
    names = ("random", "speit", "speit", "tdgia")
    cells = [record("gcn", "black_box", seed, **{n: 0.1}) for seed, n in enumerate(names)]
    assert worst_case_table(cells)["by"].iloc[0] == "speit (transfer), 2 of 4"
    assert worst_case_table(cells[1:3])["by"].iloc[0] == "speit (transfer)"
    assert worst_case_table(cells[:1])["by"].iloc[0] == "random"


def test_columns_of_what_was_not_tried_are_left_out() -> None:
    shown = show_worst_cases([record("gcn", "white_box", speit=0.5)])
    assert list(shown.cells) == ["model", "seeds", "clean", "white box", "worst", "by"]


def test_splits_are_counted_where_there_are_several() -> None:
    cells = [record("gcn", "white_box", speit=0.5) | {"split": s, "cell": s} for s in ("a", "b")]
    (row,) = show_worst_cases(cells).cells.to_dict("records")
    assert (row["seeds"], row["splits"], row["worst"]) == (1, 2, "50.00 ± 0.00")


def test_rows_of_another_variant_have_a_control_of_their_own() -> None:
    cells = [*MLP, *FLOW]
    released = [cell | {"fidelity": "released", "cell": cell["cell"] + "r"} for cell in cells]
    released = [
        cell | {"accuracy": {k: v / 2 for k, v in cell["accuracy"].items()}} for cell in released
    ]
    shown = show_worst_cases([*cells, *released])
    assert shown.keys[:2] == ["variant", "model"]
    assert list(shown.cells["variant"]) == ["paper", "paper", "released", "released"]
    assert list(shown.cells["above MLP"]) == ["0.00", "-35.00", "0.00", "-17.50"]
