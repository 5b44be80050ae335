"""The table of times, from records to every format."""

from collections.abc import Sequence
from typing import Any

import pytest

from robust_diffusion.paper.layout import load_layout
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.render_csv import to_frame
from robust_diffusion.paper.render_latex import render_latex
from robust_diffusion.results.entry import Entry
from tests.paper.records import Record, finished, timed
from tests.paper.tables import build_table

ONE_STEP = {"solver": {"num_steps": 1}}


def times(records: Sequence[Record], **options: str) -> PaperTable:
    return build_table(load_layout(7), records, **options)


def entry(table: PaperTable, **keys: str) -> Entry:
    """The only entry with these keys."""
    (found,) = [e for _, _, e in table if keys.items() <= e.keys.items()]
    return found


def beltrami(records: Sequence[Record], **options: str) -> Entry:
    keys = {"model": "beltrami", "solver": "implicit_adams", "tau": "1"}
    return entry(times(records, **options), **keys)


def lacking(**options: Any) -> Record:
    """A timing cell whose data are not there."""
    record = timed(settings=ONE_STEP, **options)
    del record["seconds"], record["timing"]
    return record | {"error": "grb-citeseer/adj.npz: not found", "error_kind": "DataError"}


def test_without_records_all_is_printed() -> None:
    table = times([])
    assert [len(list(part.entries)) for part in table.parts] == [7, 1]
    assert sum(1 for _ in table) == 28
    assert {e.state for _, _, e in table} == {"not run"}
    assert {e.reported.std for _, _, e in table} == {None}
    assert beltrami([]).reported.mean == 9.8
    assert entry(table, model="gnn_guard").reported.mean == 13.2
    assert table.lines == [
        "Entries: 28 not run.",
        "python -m robust_diffusion.run experiment=table-7 runs it.",
    ]


def test_an_entry_is_the_median_in_milliseconds_and_compared_by_a_factor() -> None:
    found = beltrami([timed(0.0049, settings=ONE_STEP)])
    assert found.mean == pytest.approx(4.9)
    assert found.quartiles == pytest.approx((4.41, 5.39))
    assert found.factor == pytest.approx(0.5)
    assert (found.difference, found.deviations, found.p, found.rank) == (None,) * 4


def test_over_seeds_an_entry_is_a_mean_and_nothing_is_tested() -> None:
    records = [timed(s / 1e3, seed=i, settings=ONE_STEP) for i, s in enumerate((4.0, 5.0, 9.0))]
    found = beltrami(records)
    assert (found.mean, found.n) == (pytest.approx(6), 3)
    assert found.quartiles == pytest.approx((5.4, 6.6))
    assert (found.p, found.p_holm, found.test) == (None, None, None)
    assert "means over the seeds" in " ".join(times(records).lines)


def test_fewer_seeds_than_in_the_other_grid_are_marked() -> None:
    records = [timed(seed=seed, settings=ONE_STEP) for seed in range(3)]
    table = times([*records, timed(model="gat")])
    assert [mark.text for mark in entry(table, model="gat").marks] == ["1 of 3 seeds"]


def test_accuracies_of_the_same_experiment_are_no_times() -> None:
    tested = finished(experiment="table-7", dataset="citeseer", settings=ONE_STEP)
    assert beltrami([tested]).state == "not run"
    assert set(build_table(load_layout(3), [timed(experiment="table-3")]).states) == {"not run"}


def test_two_machines_in_one_table_are_both_named() -> None:
    records = [timed(model="gat", machine="old"), timed(settings=ONE_STEP, machine="new")]
    records[1]["timing"] |= {"kind": "cuda", "threads": 4}
    line = times(records).lines[0]
    assert "old, 1 thread, backend compiled (1 of 2 cells)" in line
    assert "new, backend compiled (1 of 2 cells)" in line


def test_the_machine_that_was_asked_last_counts() -> None:
    records = [
        timed(seconds, settings=ONE_STEP, machine=machine)
        for machine, seconds in (("old", 0.009), ("new", 0.003))
    ]
    found = beltrami(records)
    assert found.mean == pytest.approx(3)
    assert [mark.text for mark in found.marks] == ["1 cell of other settings left out"]


def test_another_dataset_stands_in_and_is_named() -> None:
    table = times([lacking(), timed(0.0049, dataset="cora", settings=ONE_STEP)])
    found = beltrami([lacking(), timed(0.0049, dataset="cora", settings=ONE_STEP)])
    assert (found.state, found.keys["dataset"]) == ("measured", "cora")
    assert found.reported.mean == 9.8
    assert found.factor == pytest.approx(0.5)
    assert table.title.endswith("; dataset=cora as a stand-in")
    assert table.lines[0] == "Cora stands in for Citeseer; the printed times are Citeseer's."
    unnamed = times([timed(dataset="planetoid_citeseer", settings=ONE_STEP)])
    assert unnamed.lines[0].startswith("Planetoid Citeseer stands in for Citeseer")


def test_nothing_stands_in_for_a_dataset_that_was_timed() -> None:
    own = timed(0.002, settings=ONE_STEP)
    table = times([own, timed(0.004, dataset="cora", settings=ONE_STEP)])
    assert entry(table, model="beltrami", solver="implicit_adams", tau="1").mean == pytest.approx(2)
    assert "stand-in" not in table.title


def test_a_smoke_run_compares_nothing() -> None:
    table = times([timed(0.002, scale="smoke", settings=ONE_STEP)], scale="smoke")
    found = entry(table, model="beltrami", solver="implicit_adams", tau="1")
    assert (found.mean, found.factor) == (pytest.approx(2), None)
    assert table.lines[0].startswith("Smoke run:")
    assert "SMOKE RUN" in table.title


@pytest.fixture
def table() -> PaperTable:
    return times([timed(0.0049, settings=ONE_STEP), timed(0.002, model="gat")])


def test_latex_has_both_numbers_and_the_factor(table: PaperTable) -> None:
    text = render_latex(table)
    assert (
        r"\shortstack{4.90 (4.41--5.39) \\ {\fontsize{4}{5}\selectfont 9.8 ($\times$0.50)}}" in text
    )
    assert text.count(r"\begin{tabular}") == 2


def test_csv_has_every_number(table: PaperTable) -> None:
    frame = to_frame(table).set_index("column")
    line = frame[frame.state == "measured"].loc["GAT"]
    assert (line["mean"], line.q1, line.q3) == pytest.approx((2.0, 1.8, 2.2))
    assert (line.printed_mean, line.factor, line.step) == (
        1.8,
        pytest.approx(2 / 1.8),
        "aggregation",
    )
