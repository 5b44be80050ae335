import math
import statistics
from collections.abc import Sequence
from typing import Any

import pytest
from scipy import stats

from robust_diffusion.paper.layout import Layout, load_layout
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.printed import ASSUMED_RUNS
from robust_diffusion.paper.render_markdown import render_markdown
from robust_diffusion.results.entry import Entry
from tests.paper.records import Record, failed, finished, reference, seeds
from tests.paper.tables import build_table

FLOWS = ("heat", "grand", "mean_curvature", "beltrami")


def flows(records: Sequence[Record], **options: str) -> PaperTable:
    return build_table(load_layout(3), records, **options)


def entry(table: PaperTable, **keys: str) -> Entry:
    """The only entry with these keys."""
    (found,) = [e for _, _, e in table if keys.items() <= e.keys.items()]
    return found


def speit(records: Sequence[Record], **options: Any) -> Entry:
    return entry(flows(records, **options), dataset="cora", attack="speit", model="beltrami")


def kinds(found: Entry) -> list[str]:
    return [mark.kind for mark in found.marks]


def test_without_records_nothing_is_measured_and_all_is_printed() -> None:
    table = flows([])
    assert {e.state for _, _, e in table} == {"not run"}
    assert all(e.mean is e.std is e.difference is e.p is None for _, _, e in table)
    assert sum(e.reported.mean is not None for _, _, e in table) == 36
    assert "Entries: 36 not run." in table.lines
    assert "python -m robust_diffusion.run experiment=table-3 runs it." in table.lines


def test_an_entry_is_mean_and_sample_deviation_in_percent() -> None:
    values = [0.6, 0.62, 0.67]
    found = speit(seeds(values))
    assert found.state == "measured"
    assert found.mean == pytest.approx(100 * statistics.mean(values))
    assert found.std == pytest.approx(100 * statistics.stdev(values))
    assert (found.n, found.seeds) == (3, (0, 1, 2))
    assert [run.value for run in found.runs] == pytest.approx([60, 62, 67])
    assert found.runs[1].record["seed"] == 1
    assert found.difference == pytest.approx(63 - 61.87)
    assert found.std is not None
    pooled = math.sqrt((found.std**2 + 0.49**2) / 2)
    assert found.deviations == pytest.approx((63 - 61.87) / pooled)
    assert not found.outside_tolerance
    assert found.marks == ()


def test_one_seed_has_neither_spread_nor_test() -> None:
    found = speit(seeds([0.6]))
    assert (found.n, found.std, found.p, found.p_holm, found.test) == (1, None, None, None, None)
    assert found.difference == pytest.approx(60 - 61.87)


def test_several_seeds_are_tested_against_the_printed_number() -> None:
    values = [0.6, 0.62, 0.67]
    found = speit(seeds(values))
    expected = stats.ttest_ind_from_stats(
        63, 100 * statistics.stdev(values), 3, 61.87, 0.49, ASSUMED_RUNS, equal_var=False
    ).pvalue
    assert found.test == "welch"
    assert found.p == pytest.approx(expected)


def test_p_values_are_corrected_over_the_whole_table() -> None:
    records = [r for f in FLOWS for r in seeds([0.5, 0.51, 0.6], flow=f)]
    table = flows(records)
    tested = sorted((e.p, e.p_holm) for _, _, e in table if e.p is not None)
    assert len(tested) == 12
    assert "12 comparisons" in " ".join(table.lines)
    smallest, corrected = tested[0]
    assert corrected == pytest.approx(min(1.0, 12 * smallest))
    assert all(corrected >= p for p, corrected in tested)


def test_a_printed_dash_has_nothing_to_compare_with() -> None:
    records = seeds([0.8, 0.81], experiment="table-1", dataset="pubmed", model="gcn_svd")
    table = build_table(load_layout(1), records)
    found = entry(table, dataset="pubmed", attack="clean", model="gcn_svd")
    assert found.state == "measured"
    assert (found.reported.mean, found.difference, found.deviations, found.p) == (None,) * 4


@pytest.mark.parametrize(
    ("values", "deviations"),
    [
        ([0.3922, 0.3922], 0),
        ([0.3, 0.3], pytest.approx(-1844)),
        ([0.38, 0.40], pytest.approx(-0.22)),
        ([0.3], None),
    ],
)
def test_a_printed_deviation_of_zero_leaves_our_own(
    values: list[float], deviations: float | None
) -> None:
    records = seeds(values, experiment="table-1", dataset="pubmed", model="graph_sage")
    found = entry(
        build_table(load_layout(1), records), dataset="pubmed", attack="speit", model="graph_sage"
    )
    assert found.reported.std == 0
    assert found.deviations == deviations
    assert found.outside_tolerance == (values == [0.3, 0.3])


def test_a_reference_fills_an_entry() -> None:
    theirs = finished(attacked=0.6, experiment="table-1")
    assert speit([theirs]).state == "not run"
    assert speit([theirs, reference(theirs, "table-3")]).mean == pytest.approx(60)


def test_missing_data_are_never_a_number() -> None:
    records = [failed("x/adj.npz: not found", "DataError", seed=seed) for seed in range(3)]
    found = speit(records)
    assert (found.state, found.mean, found.std, found.n) == ("no data", None, None, 0)
    assert found.reason == "no data: x/adj.npz: not found"
    assert kinds(found) == ["no data"]


def test_a_failure_says_more_than_missing_data() -> None:
    records = [failed("gone", "DataError", seed=0), failed("broken", seed=1)]
    found = speit(records)
    assert (found.state, found.reason) == ("failed", "failed: broken")
    assert kinds(found) == ["failed", "no data"]


def test_a_failed_seed_is_marked_beside_the_mean_of_the_others() -> None:
    records = [*seeds([0.6, 0.62]), failed("broken", seed=2), failed("broken", seed=3)]
    found = speit(records)
    assert (found.state, found.n, found.reason) == ("measured", 2, None)
    assert [mark.text for mark in found.marks] == ["failed: broken (seeds 2, 3)"]


def test_fewer_seeds_than_elsewhere_are_marked() -> None:
    table = flows([*seeds([0.6, 0.61, 0.62]), *seeds([0.5], flow="heat")])
    heat = entry(table, dataset="cora", attack="clean", model="heat")
    assert [mark.text for mark in heat.marks] == ["1 of 3 seeds"]
    assert entry(table, dataset="cora", attack="clean", model="beltrami").marks == ()


def test_warnings_that_differ_in_numbers_share_a_mark() -> None:
    records = seeds([0.6, 0.61, 0.62, 0.63])
    for seed, share in enumerate((16.79, 21.6, 16.79, 22)):
        records[seed]["warnings"] = {"speit": [f"weaker than chance: 35.8 % against {share} %"]}
    records[3]["warnings"]["speit"].append("adds 1 edge")
    marks = entry(flows(records), dataset="cora", attack="speit", model="beltrami").marks
    assert [mark.text for mark in marks] == [
        "speit: weaker than chance: 35.8 % against 16.79 % "
        "(seeds 0, 2; with other numbers seeds 1, 3); not a bound",
        "speit: adds 1 edge (seed 3); not a bound",
    ]


def test_a_warning_of_an_attack_is_marked_where_it_matters() -> None:
    records = seeds([0.6, 0.61, 0.62])
    for record in records[:2]:
        record["warnings"] = {"speit": ["weaker than chance"]}
    table = flows(records)
    flagged = entry(table, dataset="cora", attack="speit", model="beltrami")
    (mark,) = flagged.marks
    assert mark.kind == "warning"
    assert mark.text == "speit: weaker than chance (seeds 0, 1); not a bound"
    assert flagged.rank is None
    assert entry(table, dataset="cora", attack="tdgia", model="beltrami").marks == ()


def test_seeds_of_several_versions_of_the_code_are_marked() -> None:
    records = [finished(seed=0), finished(seed=1, code="other")]
    found = speit(records)
    assert kinds(found) == ["code"]
    assert "c0de, other" in found.marks[0].text
    assert "Cells of 2 versions of the code: c0de, other." in flows(records).lines


def test_cells_of_other_settings_are_marked() -> None:
    short = finished(settings={"training": {"max_epochs": 10}})
    found = speit([short, finished()])
    assert [mark.text for mark in found.marks] == ["1 cell of other settings left out"]


def test_another_budget_than_the_papers_is_marked_where_it_was_spent() -> None:
    table = flows([finished(budget=(10, 20))])
    found = entry(table, dataset="cora", attack="speit", model="beltrami")
    assert [mark.text for mark in found.marks] == ["budget 10 x 20, reported 50 x 50"]
    assert entry(table, dataset="cora", attack="clean", model="beltrami").marks == ()


def test_a_smoke_run_is_not_compared_with_the_paper() -> None:
    table = flows([r | {"scale": "smoke"} for r in seeds([0.1, 0.2])], scale="smoke")
    found = entry(table, dataset="cora", attack="speit", model="beltrami")
    assert found.mean == pytest.approx(15)
    assert found.reported.mean == 61.87
    assert (found.difference, found.deviations, found.p, found.p_holm) == (None,) * 4
    assert found.marks == ()
    assert table.smoke
    assert "SMOKE RUN" in table.title
    assert table.lines[0].startswith("Smoke run:")
    assert flows([], scale="smoke").lines[-1].endswith("experiment=table-3 scale=smoke runs it.")
    said = flows([], fidelity="released").lines[-1]
    assert said.endswith("experiment=table-3 fidelity=released runs it.")


def ranks(table: PaperTable, **keys: str) -> list[int | None]:
    return [e.rank for _, _, e in table if keys.items() <= e.keys.items()]


def test_best_and_second_best_of_a_row() -> None:
    values = {"heat": 0.1, "grand": 0.4, "mean_curvature": 0.3, "beltrami": 0.2}
    table = flows([finished(v, v, flow=f) for f, v in values.items()])
    assert ranks(table, dataset="cora", attack="clean") == [None, 1, 2, None]
    assert ranks(table, dataset="pubmed", attack="clean") == [None] * 4


def test_entries_that_look_equal_share_a_rank() -> None:
    values = {"heat": 0.3, "grand": 0.300001, "mean_curvature": 0.2, "beltrami": 0.1}
    table = flows([finished(v, v, flow=f) for f, v in values.items()])
    assert ranks(table, dataset="cora", attack="clean") == [1, 1, 2, None]


def test_an_entry_that_another_experiment_shows_to_be_no_bound_has_no_rank() -> None:
    white: dict[str, Any] = {"experiment": "table-8", "threat": "white_box", "attacks": ("speit",)}
    cells = [finished(0.8, 0.6, **white), finished(0.8, 0.5, model="gat", **white)]
    auto = {"experiment": "worst-case", "attacks": ("auto",)}
    stronger = finished(0.8, 0.1, cell="auto", **white | auto)
    where = {"dataset": "cora", "attack": "speit"}
    outdone, best = (
        entry(build_table(load_layout(8), [*cells, stronger]), **where, model=model)
        for model in ("beltrami", "gat")
    )
    assert (outdone.mean, outdone.rank, best.rank) == (60, None, 1)
    assert "attack=auto reaches 10.00 %" in outdone.marks[0].text
    alone = entry(build_table(load_layout(8), cells), **where, model="beltrami")
    assert (alone.mean, alone.rank, alone.marks) == (60, 1, ())


def test_of_two_there_is_no_second_best() -> None:
    records = [
        finished(0.5, experiment="table-6", attacks=["speit"]),
        finished(
            0.4,
            experiment="table-6",
            attacks=["speit"],
            settings={"flow": {"spectral_norm": False}},
        ),
    ]
    for record in records:
        record["config"]["model"]["num_layers"] = 2
    table = build_table(load_layout(6), records)
    assert ranks(table, attack="clean", layers="2") == [1, None]


def test_ranks_go_down_a_column_where_rows_compete() -> None:
    values = {("implicit_adams", 1): 0.5, ("implicit_adams", 2): 0.7, ("dopri5", 2): 0.6}
    records = [
        finished(
            value,
            experiment="table-5",
            dataset="citeseer",
            solver=solver,
            settings={"solver": {"num_steps": steps}},
        )
        for (solver, steps), value in values.items()
    ]
    table = build_table(load_layout(5), records)
    assert ranks(table, attack="clean") == [None, 1, None, None, None, None, 2]


def test_nothing_is_ranked_where_nothing_competes() -> None:
    records = [finished(experiment="table-2", model="beltrami_guard")]
    table = build_table(load_layout(2), records)
    assert {e.rank for _, _, e in table} == {None}


def records_at(layout: Layout, value: float) -> list[Record]:
    """A record for each entry, that fits it by its conditions alone."""
    made = []
    for row in layout.rows:
        for column in layout.columns:
            line = layout.at(row, column)
            graph = line.printed["attack"]
            record = finished(
                value,
                experiment=layout.experiment,
                dataset=line.record["dataset"],
                attacks=[] if graph == "clean" else [graph],
                seed=0,
            )
            for path, wanted in line.record.items():
                node, *rest = [record, *path.split(".")]
                for key in rest[:-1]:
                    node = node.setdefault(key, {})
                node[rest[-1]] = wanted
            record["cell"] = repr(line)
            made.append(record)
    return made


@pytest.mark.parametrize("number", [1, 2, 3, 5, 6, 8, 9, 10, 11, 12, 13, 14])
def test_every_entry_of_every_table_can_be_filled(number: int) -> None:
    layout = load_layout(number)
    table = build_table(layout, records_at(layout, 0.6))
    assert {e.state for _, _, e in table} == {"measured"}
    assert len(table.entries) == len(layout.rows)
    assert {len(row) for row in table.entries} == {len(layout.columns)}
    assert {e.mean for _, _, e in table} == {60.0}


def test_the_budgets_of_the_configuration_are_the_papers() -> None:
    table = build_table(load_layout(15), [])
    assert table.decimals == 0
    assert all(e.state == "measured" and e.difference == 0 for _, _, e in table)
    assert entry(table, dataset="flickr", limit="max_edges_per_injected_node").mean == 5000
    assert "per injected node" in " ".join(table.lines)


@pytest.mark.parametrize(
    ("number", "own"), [(3, {"flow": "heat"}), (2, {"model": "beltrami_guard"})]
)
def test_a_stand_in_is_named_beside_what_it_stands_in_for_without_printed_numbers(
    number: int, own: dict[str, str]
) -> None:
    records = seeds([0.6, 0.7], dataset="planetoid_citeseer", experiment=f"table-{number}", **own)
    table = build_table(load_layout(number), records)
    found = [
        entry
        for _, _, entry in table
        if entry.keys["dataset"] == "planetoid_citeseer" and entry.mean is not None
    ]
    assert found
    assert all(entry.mean == pytest.approx(65) for entry in found)
    assert all(entry.reported.mean is entry.deviations is entry.p is None for entry in found)
    assert "Planetoid Citeseer" in render_markdown(table)
    assert any("which is another graph" in line for line in table.lines)
    citeseer = [e for _, _, e in table if e.keys["dataset"] == "citeseer"]
    assert {entry.state for entry in citeseer} == {"not run"}
    assert all(entry.reported.mean is not None for entry in citeseer)
    unchanged = build_table(load_layout(number), seeds([0.6], experiment=f"table-{number}", **own))
    assert "Planetoid" not in render_markdown(unchanged)


def test_a_table_of_one_dataset_becomes_one_of_the_stand_in_unless_both_were_run() -> None:
    options = {"experiment": "table-5", "settings": {"solver": {"num_steps": 2}}}
    records = seeds([0.6], dataset="planetoid_citeseer", **options)
    table = build_table(load_layout(5), records)
    assert "dataset=planetoid_citeseer as a stand-in" in table.title
    assert {entry.reported.mean for _, _, entry in table} == {None}
    assert any(entry.mean == pytest.approx(60) for _, _, entry in table)
    both = build_table(load_layout(5), [*records, *seeds([0.7], dataset="citeseer", **options)])
    assert "stand-in" not in both.title
    assert any(entry.mean == pytest.approx(70) for _, _, entry in both)
