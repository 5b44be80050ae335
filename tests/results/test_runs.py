from typing import Any

from robust_diffusion.results.runs import Runs, Selection, select
from tests.paper.records import Record, also_asked, failed, finished, timed

Records = list[Record]
BELTRAMI = {"dataset": "cora", "model": "graph_pde", "flow": "beltrami"}


def cells_of(records: Records, **options: str) -> Records:
    return Runs(records, **({"fidelity": "paper"} | options)).of("table-3")


def results(*runs: Record) -> list[Any]:
    return [(run["run"], run["accuracy"]) for run in runs]


def members(records: Records, **options: str) -> list[Any]:
    return results(*cells_of(records, **options))


def selected(records: Records, graph: str = "speit") -> Selection:
    return select(cells_of(records), BELTRAMI, graph)


def values(found: Selection, graph: str = "speit") -> dict[int, float]:
    return {seed: record["accuracy"][graph] for seed, record in found.finished.items()}


def test_cells_are_of_one_experiment_scale_and_variant() -> None:
    mine = finished()
    others = [
        finished(experiment="table-1", seed=1),
        finished(scale="smoke", seed=2),
        finished(fidelity="released", seed=3),
    ]
    assert members([mine, *others]) == results(mine)
    assert members([mine, *others], scale="smoke") == results(others[1])
    assert members([mine, *others], fidelity="released") == results(others[2])


def test_a_cell_counts_once_by_its_latest_result_where_it_was_asked_for() -> None:
    first, again = finished(0.1), finished(0.2)
    broken, other = failed(), finished(experiment="table-1", seed=1)
    records = [first, broken, again, other]
    assert members(records) == members([again, broken]) == results(again)
    assert members([*records, also_asked(other, "table-3")]) == results(again, other)
    assert members([also_asked(first, scale="smoke")], scale="smoke") == results(first)


def test_an_entry_has_the_cells_that_fit_it_by_seed() -> None:
    others = ({"flow": "heat"}, {"dataset": "citeseer"}, {"model": "gat"}, {"attacks": ["tdgia"]})
    records = [
        finished(attacked=0.3, seed=2),
        finished(attacked=0.1, seed=0),
        *(finished(attacked=0.9, **other) for other in others),
    ]
    assert list(values(selected(records)).items()) == [(0, 0.1), (2, 0.3)]
    assert values(selected(records, graph="tdgia"), "tdgia")[0] == 0.9
    assert selected(records, graph="clean").left_out == 0
    assert selected([]) == Selection({}, {}, 0)


def test_the_settings_that_were_asked_for_last_count_alone() -> None:
    short = {"training": {"max_epochs": 10}}
    old = [finished(attacked=0.9, seed=seed, settings=short) for seed in (0, 1)]
    records = [*old, finished(attacked=0.1, seed=0)]
    found = selected(records)
    assert (values(found), found.left_out) == ({0: 0.1}, 2)
    found = selected([*records, *map(also_asked, old)])
    assert (values(found), found.left_out) == ({0: 0.9, 1: 0.9}, 1)


def test_times_and_accuracies_are_never_taken_for_each_other() -> None:
    tested = finished(seed=0)
    took = timed(experiment="table-3", dataset="cora", seed=1)
    stopped = took | {"run": "stopped", "seed": 2, "error": "no", "error_kind": "ConfigError"}
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
