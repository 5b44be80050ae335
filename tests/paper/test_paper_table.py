import math
import statistics
from collections.abc import Sequence
from typing import Any

import pytest
from scipy import stats

from robust_diffusion.paper.agreement import agreement
from robust_diffusion.paper.layout import ASSUMED_RUNS, parse_layout
from robust_diffusion.paper.paper_table import PaperTable, build_table
from robust_diffusion.paper.render import render_markdown
from robust_diffusion.results.entry import Entry
from robust_diffusion.results.runs import Runs
from robust_diffusion.system.numbers import holm
from tests.paper.records import Record, finished, seeds
from tests.paper.tables import table_of
from tests.paper.test_layout import SECTION


def entry(table: PaperTable, **keys: str) -> Entry:
    """The only entry with these keys."""
    (found,) = [e for _, _, e in table if keys.items() <= e.keys.items()]
    return found


def speit(records: Sequence[Record], **options: Any) -> Entry:
    table = table_of(3, records, **options)
    return entry(table, dataset="cora", attack="speit", model="beltrami")


def test_an_entry_is_mean_and_sample_deviation_in_percent() -> None:
    values = [0.6, 0.62, 0.67]
    found, std = speit(seeds(values)), 100 * statistics.stdev(values)
    assert (found.state, found.mean, found.std) == ("measured", *map(pytest.approx, (63, std)))
    assert [run.value for run in found.runs] == pytest.approx([60, 62, 67])
    assert [run.record["seed"] for run in found.runs] == [0, 1, 2]
    assert found.difference == pytest.approx(63 - 61.87)
    assert found.deviations == pytest.approx((63 - 61.87) / math.sqrt((std**2 + 0.49**2) / 2))
    given = (63, std, 3, 61.87, 0.49, ASSUMED_RUNS)
    expected = stats.ttest_ind_from_stats(*given, equal_var=False).pvalue
    assert (found.test, found.p, found.marks) == ("welch", pytest.approx(expected), [])


def test_an_entry_that_another_experiment_shows_to_be_no_bound_has_no_rank() -> None:
    white: dict[str, Any] = {"experiment": "table-8", "threat": "white_box", "attacks": ("speit",)}
    cells = [finished(0.8, 0.6, **white), finished(0.8, 0.5, model="gat", **white)]
    auto = {"experiment": "worst-case", "attacks": ("auto",)}
    stronger = finished(0.8, 0.1, run="auto", **white | auto)
    where = {"dataset": "cora", "attack": "speit"}
    stronger_attacks, best = (
        entry(table_of(8, [*cells, stronger]), **where, model=model)
        for model in ("beltrami", "gat")
    )
    assert (stronger_attacks.mean, stronger_attacks.rank, best.rank) == (60, None, 1)
    assert "attack=auto reaches 10.00 %" in stronger_attacks.marks[0].text
    alone = entry(table_of(8, cells), **where, model="beltrami")
    assert (alone.mean, alone.rank, alone.marks) == (60, 1, [])


@pytest.mark.parametrize(
    ("number", "own"), [(3, {"flow": "heat"}), (2, {"model": "beltrami_guard"})]
)
def test_a_stand_in_takes_the_place_of_its_dataset_beside_the_same_printed_numbers(
    number: int, own: dict[str, str]
) -> None:
    own = own | {"experiment": f"table-{number}"}
    on_cora, on_words = seeds([0.6, 0.7], **own), seeds([0.7, 0.8], dataset="citeseer_words", **own)

    def of(table: PaperTable, dataset: str) -> list[Entry]:
        return [e for *_, e in table if e.keys["dataset"] == dataset]

    table, paper = table_of(number, on_cora + on_words), table_of(number, on_cora)
    entries = of(table, "citeseer_words")
    assert of(table, "citeseer") == []
    assert [e.reported for e in entries] == [e.reported for e in of(paper, "citeseer")]
    assert all(e.difference is not None for e in entries if e.runs)
    assert any(e.runs for e in entries)
    assert any("3,703 words" in line for line in table.lines)
    assert "words" not in render_markdown(paper)
    # Counted apart: the corrected p-values on the paper's own features stay.
    assert [e.p_holm for e in of(table, "cora")] == [e.p_holm for e in of(paper, "cora")]
    both = [agreement([table], stand_ins=stand_ins).entries for stand_ins in (False, True)]
    assert [set(x["dataset"]) for x in both] == [{"cora"}, {"citeseer_words"}]
    former = seeds([0.6], dataset="planetoid_citeseer", **own)
    assert any(e.runs for e in of(table_of(number, on_cora + former), "planetoid_citeseer"))
    assert not of(table_of(number, on_words + former), "planetoid_citeseer")
    failed = seeds([0.6], dataset="citeseer", error="ConfigError: no file", **own)
    assert of(table_of(number, failed + on_words), "citeseer")


def test_an_attacked_table_says_what_an_mlp_reaches_on_its_datasets() -> None:
    mlp = seeds([0.5, 0.6], experiment="mlp", model="mlp", fidelity="released")
    (line,) = (x for x in table_of(3, seeds([0.7]) + mlp).lines if "MLP" in x)
    assert line == "An MLP, which sees no edge, reaches 55.00 ± 7.07 on Cora."
    assert not any("MLP" in x for x in table_of(3, seeds([0.7])).lines)


def test_tests_are_corrected_over_all_grids_of_a_table() -> None:
    rows = [[{"dataset": [name], "attack": ["clean", "speit"]}] for name in ("cora", "pubmed")]
    layout = parse_layout(SECTION | {"number": 3, "rows": rows[0], "below": {"rows": rows[1]}})
    records = seeds([0.6, 0.62, 0.67]) + seeds([0.7, 0.8, 0.84], dataset="pubmed")
    table = build_table(layout, Runs(records, fidelity="paper"))
    tested = [entry for *_, entry in table if entry.p is not None]
    assert [e.p_holm for e in tested] == holm([e.p or 0.0 for e in tested])
    assert len(tested) == 4
