import logging
from typing import Any

import pytest

from robust_diffusion.results.cells import Cell, RecordSet, Selection, select, value_at
from tests.paper.records import failed, finished, reference, timed

Records = list[dict[str, Any]]
BELTRAMI = {"dataset": "cora", "model": "graph_pde", "flow": "beltrami"}


def cells_of(records: Records, **options: str) -> list[Cell]:
    return RecordSet.of(records, **({"fidelity": "paper"} | options)).cells("table-3")


def members(records: Records, **options: str) -> Records:
    return [cell.record for cell in cells_of(records, **options)]


def selected(records: Records, graph: str = "speit") -> Selection:
    return select(cells_of(records), BELTRAMI, graph)


def values(found: Selection, graph: str = "speit") -> dict[int, float]:
    return {seed: cell.record["accuracy"][graph] for seed, cell in found.finished.items()}


def test_cells_are_of_one_experiment_scale_and_variant() -> None:
    mine = finished()
    others = [
        finished(experiment="table-1", seed=1),
        finished(scale="smoke", seed=2),
        finished(fidelity="released", seed=3),
    ]
    assert members([mine, *others]) == [mine]
    assert members([mine, *others], scale="smoke") == [others[1]]
    assert members([mine, *others], fidelity="released") == [others[2]]


def test_records_without_a_cell_are_left_out() -> None:
    old = finished()
    del old["cell"]
    assert members([old]) == []


def test_a_reference_brings_the_cell_of_another_experiment() -> None:
    other = finished(experiment="table-1")
    assert members([other, reference(other, "table-3")]) == [other]
    assert members([other, reference(other, "table-5")]) == []


def test_a_smoke_run_may_ask_for_the_cell_of_a_full_one() -> None:
    full = finished()
    again = reference(full) | {"scale": "smoke"}
    assert members([full, again], scale="smoke") == [full]


def test_a_cell_counts_once_however_often_it_was_asked_for() -> None:
    record = finished()
    assert members([record, reference(record), reference(record)]) == [record]


def test_the_latest_result_of_a_cell_counts() -> None:
    first, again = finished(0.1), finished(0.2)
    assert first["cell"] == again["cell"]
    assert members([first, again]) == [again]


def test_a_later_failure_does_not_hide_a_result() -> None:
    done, broken = finished(), failed()
    assert done["cell"] == broken["cell"]
    assert members([done, broken]) == [done]
    assert members([broken, done]) == [done]


def test_a_reference_to_nothing_is_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    record = finished()
    with caplog.at_level(logging.WARNING):
        assert members([reference(record)]) == []
    assert "only a reference is there" in caplog.text


def test_an_entry_has_the_cells_that_fit_it_by_seed() -> None:
    records = [
        finished(attacked=0.3, seed=2),
        finished(attacked=0.1, seed=0),
        finished(attacked=0.9, flow="heat"),
        finished(attacked=0.9, dataset="citeseer"),
        finished(attacked=0.9, model="gat"),
    ]
    assert values(selected(records)) == {0: 0.1, 2: 0.3}
    assert list(selected(records).finished) == [0, 2]


def test_a_graph_that_a_cell_lacks_is_not_its() -> None:
    alone = finished(attacks=["tdgia"])
    assert values(selected([alone])) == {}
    assert values(selected([alone], graph="clean"), "clean") == {0: 0.75}


def test_attacks_of_different_runs_may_come_together() -> None:
    records = [finished(attacked=0.1, attacks=["speit"]), finished(attacked=0.2, attacks=["tdgia"])]
    assert values(selected(records)) == {0: 0.1}
    assert values(selected(records, graph="tdgia"), "tdgia") == {0: 0.2}
    assert selected(records, graph="clean").left_out == 0


def test_a_clean_accuracy_does_not_depend_on_the_budget() -> None:
    records = [finished(0.5, budget=(n, n), seed=seed) for n in (10, 20) for seed in (0, 1)]
    found = selected(records, graph="clean")
    assert (values(found, "clean"), found.left_out) == ({0: 0.5, 1: 0.5}, 0)


def test_seeds_of_other_settings_are_not_mixed_in() -> None:
    short = {"training": {"max_epochs": 10}}
    records = [
        finished(attacked=0.9, seed=0, settings=short),
        finished(attacked=0.9, seed=1, settings=short),
        finished(attacked=0.1, seed=0),
    ]
    found = selected(records)
    assert (values(found), found.left_out) == ({0: 0.1}, 2)


def test_the_settings_that_were_asked_for_last_count() -> None:
    short, whole = finished(0.1, 0.1, settings={"training": {"max_epochs": 10}}), finished(0.2, 0.2)
    assert values(selected([short, whole])) == {0: 0.2}
    assert values(selected([short, whole, reference(short)])) == {0: 0.1}


def test_settings_that_only_failed_do_not_hide_results() -> None:
    done = finished()
    broken = failed(settings={"training": {"max_epochs": 0}})
    found = selected([done, broken])
    assert (values(found), found.failed, found.left_out) == ({0: 0.6}, {}, 1)


def test_where_a_cell_ran_makes_no_difference() -> None:
    records = [finished(seed=0), finished(seed=1)]
    records[1]["config"]["data"]["source"]["folder"]["root"] = "elsewhere"
    records[1]["config"]["training"]["trainer"] = {"accelerator": "gpu"}
    records[1]["config"]["training"]["progress_bar"] = False
    assert list(selected(records).finished) == [0, 1]


def test_a_failed_seed_is_told_where_none_finished() -> None:
    found = selected([finished(seed=0), failed(seed=1)])
    assert list(found.failed) == [1]
    other_budget = failed(seed=0, budget=(9, 9))
    assert selected([finished(seed=0), other_budget], graph="clean").failed == {}


def test_a_failed_cell_has_the_graphs_that_it_would_have_had() -> None:
    broken = failed(attacks=["tdgia"])
    assert list(selected([broken], graph="clean").failed) == [0]
    assert list(selected([broken], graph="tdgia").failed) == [0]
    assert selected([broken], graph="speit").failed == {}


def test_times_and_accuracies_are_never_taken_for_each_other() -> None:
    tested = finished(seed=0)
    took = timed(experiment="table-3", dataset="cora", seed=1)
    stopped = {key: value for key, value in took.items() if key not in ("seconds", "timing")}
    stopped |= {"cell": "stopped", "seed": 2, "error": "no", "error_kind": "ConfigError"}
    cells = cells_of([tested, took, stopped])
    accuracies = select(cells, BELTRAMI, "clean")
    assert (list(accuracies.finished), list(accuracies.failed)) == ([0], [])
    times = select(cells, BELTRAMI, "clean", timed=True)
    assert (list(times.finished), list(times.failed)) == ([1], [2])
    assert select(cells, BELTRAMI, "speit", timed=True) == Selection({}, {}, 0)


def test_times_of_two_machines_are_not_mixed() -> None:
    here, there = (
        timed(experiment="table-3", dataset="cora", seed=seed, machine=machine)
        for seed, machine in enumerate(["here", "there"])
    )
    cells = cells_of([there, here, timed(seed=2)])
    found = select(cells, BELTRAMI, "clean", timed=True)
    assert (list(found.finished), found.left_out) == ([0], 1)


def test_no_cell_is_an_empty_selection() -> None:
    assert selected([]) == Selection({}, {}, 0)


@pytest.mark.parametrize(
    ("path", "value"), [("a", {"b": 1}), ("a.b", 1), ("a.c", None), ("a.b.c", None), ("x", None)]
)
def test_a_path_leads_to_a_value_or_nothing(path: str, value: Any) -> None:
    found = value_at({"a": {"b": 1}}, path)
    assert found == value if value is not None else found not in (None, 1, False)
