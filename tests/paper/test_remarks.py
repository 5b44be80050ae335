"""Remarks on a whole table; their wording is that of the published views."""

from collections.abc import Sequence

from robust_diffusion.paper.layout import load_layout
from tests.paper.records import Record, finished, reference
from tests.paper.tables import build_table


def said(records: Sequence[Record], number: int = 3) -> str:
    return " ".join(build_table(load_layout(number), records).lines)


def test_a_modification_has_shares_for_a_budget_and_limits_it_does_not_keep() -> None:
    limits = {"node_ratio": 0.4, "edge_ratio": 0.4, "epsilon": 0.01}
    record = finished(
        experiment="table-10", attacks=("pgd_modification",), settings={"budget": limits}
    )
    spent = {"changed_nodes": 107, "largest_feature_change": 1.3}
    record["budget"]["spent"]["pgd_modification"]["gcn"] |= spent
    text = said([record], 10)
    assert "Budget of each attack: 0.4 of the target nodes, 0.4 of their edges, features by" in text
    assert "Spent: pgd_modification 107 nodes changed, 1.3 largest change." in text
    assert "not bounded" not in text
    record["budget"]["unbounded"] = {"pgd_modification": {"epsilon": "step reading"}}
    assert "pgd_modification: not bounded by epsilon (step reading)." in said([record], 10)


def test_options_that_neither_table_nor_experiment_says_are_named() -> None:
    own = {"flow": "beltrami", "dataset": "cora", "paths.outputs": "x", "trainer": "cpu"}
    own |= {"training.max_epochs": "10", "threat": "black_box"}
    more = {"solver": "rk4", "threat.fit.max_epochs": "50"}
    records = [finished(overrides=own), finished(seed=1, overrides=own | more)]
    named = "training.max_epochs=10 in 2 of 2 cells; solver=rk4 in 1 of 2 cells; "
    named += "threat.fit.max_epochs=50 in 1 of 2 cells."
    assert f"Options beyond the table's: {named}" in said(records)
    theirs = finished(experiment="table-1", overrides={"model": "graph_pde", "dataset": "cora"})
    assert "Options beyond" not in said([theirs, reference(theirs, "table-3")])


def test_an_option_that_only_spells_out_a_default_is_not_named() -> None:
    spelt = finished(flow="beltrami", overrides={"training.max_epochs": "5000"})
    other = finished(flow="heat")  # whose default says nothing about Beltrami's
    assert "training.max_epochs=5000 in 1 of 2" in said([spelt, other])
    assert "Options beyond" not in said([spelt, other, finished(flow="beltrami", seed=1)])
    records = [
        finished(flow="beltrami", overrides={"fidelity.edge_values": "ids"}),
        finished(flow="heat"),
    ]
    for record in records:
        record["config"]["fidelity"] = {"edge_values": "ids"}
    assert "Options beyond" not in said(records)
    records[1]["config"]["fidelity"] = {"edge_values": "ones"}
    assert "fidelity.edge_values=ids in 1 of 2 cells." in said(records)


def test_a_table_that_was_not_run_says_how_to_run_it() -> None:
    def last(scale: str = "full", fidelity: str = "paper") -> str:
        return build_table(load_layout(3), [], scale=scale, fidelity=fidelity).lines[-1]

    run = "python -m robust_diffusion.run experiment=table-3"
    assert last() == f"{run} runs it."
    assert last(scale="smoke") == f"{run} scale=smoke runs it."
    assert last(fidelity="released") == f"{run} fidelity=released runs it."
