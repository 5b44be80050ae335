from collections.abc import Sequence

from robust_diffusion.paper.layout import load_layout
from robust_diffusion.paper.paper_table import PaperTable
from tests.paper.records import Record, failed, finished, reference
from tests.paper.tables import build_table


def flows(records: Sequence[Record]) -> PaperTable:
    return build_table(load_layout(3), records)


def said(records: Sequence[Record]) -> str:
    return " ".join(flows(records).lines)


def test_without_an_attack_there_is_no_threat_and_no_budget() -> None:
    text = said([finished(attacks=[])])
    assert "threat model" not in text
    assert "Budget" not in text


def test_a_modification_has_shares_for_a_budget() -> None:
    limits = {"node_ratio": 0.4, "edge_ratio": 0.4, "epsilon": 0.01}
    record = finished(
        experiment="table-10", attacks=("pgd_modification",), settings={"budget": limits}
    )
    record["budget"]["spent"]["pgd_modification"]["gcn"] |= {"changed_nodes": 107}
    text = " ".join(build_table(load_layout(10), [record]).lines)
    assert "Budget of each attack: 0.4 of the target nodes, 0.4 of their edges, features by" in text
    assert "Spent: pgd_modification 107 nodes changed." in text
    assert "not bounded" not in text


def test_a_limit_that_an_attack_does_not_keep_by_its_definition_is_named() -> None:
    record = finished(experiment="table-10", attacks=("pgd_modification",))
    spent = {"changed_nodes": 107, "largest_feature_change": 1.3}
    record["budget"]["spent"]["pgd_modification"]["gcn"] |= spent
    record["budget"]["unbounded"] = {"pgd_modification": {"epsilon": "step reading"}}
    table = build_table(load_layout(10), [record])
    assert "features by 0.1" in " ".join(table.lines)
    assert "1.3 largest change" in " ".join(table.lines)
    assert "pgd_modification: not bounded by epsilon (step reading)." in table.lines


def test_entries_are_counted_by_state() -> None:
    records = [
        finished(),
        failed(flow="heat"),
        *(failed("gone", "DataError", dataset="pubmed", flow=f) for f in ("heat", "grand")),
    ]
    states = flows(records).states
    assert states == {"failed": 3, "not run": 24, "measured": 3, "no data": 6}
    assert sum(states.values()) == 36


def test_options_that_the_table_does_not_have_are_named() -> None:
    own = {"flow": "beltrami", "dataset": "cora", "paths.outputs": "x", "trainer": "cpu"}
    records = [
        finished(seed=0, overrides={**own, "training.max_epochs": "10"}),
        finished(seed=1, overrides={**own, "training.max_epochs": "10", "solver": "rk4"}),
    ]
    assert (
        "Options beyond the table's: training.max_epochs=10 in 2 of 2 cells; solver=rk4 in 1 of 2"
    ) in said(records)


def test_options_below_a_group_that_is_said_elsewhere_are_named() -> None:
    own = {"fidelity": "released", "threat": "black_box", "trainer": "cpu"}
    below = {"fidelity.attention": "trained", "threat.fit.max_epochs": "50", "surrogates.x": "1"}
    named = "; ".join(f"{key}={value} in 1 of 1 cells" for key, value in below.items())
    assert f"Options beyond the table's: {named}." in said([finished(overrides=own | below)])


def test_an_option_that_only_spells_out_a_default_is_not_named() -> None:
    records = [
        finished(flow="beltrami", overrides={"fidelity.edge_values": "ids"}),
        finished(flow="heat"),
    ]
    for record in records:
        record["config"]["fidelity"] = {"edge_values": "ids"}
    assert "Options beyond" not in said(records)
    records[1]["config"]["fidelity"] = {"edge_values": "ones"}
    assert "Options beyond the table's: fidelity.edge_values=ids in 1 of 2 cells." in said(records)


def test_the_default_of_another_flow_does_not_count() -> None:
    records = [
        finished(flow="beltrami", overrides={"training.max_epochs": "5000"}),
        finished(flow="heat"),
    ]
    assert "Options beyond the table's: training.max_epochs=5000 in 1 of 2" in said(records)
    records.append(finished(flow="beltrami", seed=1))
    assert "Options beyond" not in said(records)


def test_a_cell_of_another_table_brings_no_options_that_its_entry_says() -> None:
    theirs = finished(experiment="table-1", overrides={"model": "graph_pde", "dataset": "cora"})
    assert "Options beyond" not in said([theirs, reference(theirs, "table-3")])
