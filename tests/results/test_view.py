"""Cells against a loop over records, and their statistics against SciPy."""

import itertools
import math
import statistics
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from robust_diffusion.results.frame import asked_by, narrow_frame
from robust_diffusion.results.view import ASSUMED_RUNS, View, cells
from tests.paper.records import Record, also_asked, failed, finished, seeds, timed
from tests.results.worst_cases import with_words

BY_MODEL = View(["dataset", "attack"], ["model"])


def table(records: list[Record], view: View = BY_MODEL, **options: Any) -> pd.DataFrame:
    return cells(asked_by(narrow_frame(records), "table-3"), view, **options)


@st.composite
def runs(draw: st.DrawFn) -> Record:
    """A run that some experiment asked for, or failed, of a few settings and data sets."""
    options: dict[str, Any] = {
        "experiment": draw(st.sampled_from(["table-3", "table-3", "table-1"])),
        "dataset": draw(st.sampled_from(["cora", "pubmed"])),
        "flow": draw(st.sampled_from(["heat", "beltrami"])),
        "seed": draw(st.integers(0, 2)),
        "settings": {"training": {"max_epochs": draw(st.sampled_from([10, 5000]))}},
    }
    if draw(st.booleans()) and draw(st.booleans()):
        return failed(**options)
    accuracies = st.sampled_from([0.1, 0.25, 0.7])
    return finished(draw(accuracies), draw(accuracies), **options)


def naive(records: list[Record]) -> dict[tuple[str, str, str], dict[int, float]]:
    """Accuracies in % by seed of each dataset, graph and flow, by the settings asked for last."""
    latest: dict[str, Record] = {}
    for record in records:
        if record.error is None or latest.get(record.run, record).error:
            latest[record.run] = record
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    keys = itertools.product(["cora", "pubmed"], ["clean", "speit", "tdgia"], ["heat", "beltrami"])
    for dataset, graph, flow in keys:
        by_epochs: dict[int, dict[int, float]] = {}
        for result in (latest[r.run] for r in records if r.experiment == "table-3"):
            if (result.dataset, result.flow) == (dataset, flow) and result.error is None:
                epochs = result.config.training["max_epochs"]
                of_settings = by_epochs.pop(epochs, {})
                by_epochs[epochs] = of_settings | {result.seed: 100 * result.accuracy[graph]}
        if by_epochs:
            found[dataset, graph, flow] = list(by_epochs.values())[-1]
    return found


@given(st.lists(runs(), min_size=1, max_size=12))
def test_cells_are_those_of_a_loop_over_records(drawn: list[Record]) -> None:
    records = [run.model_copy(update={"time": f"{i:03}"}) for i, run in enumerate(drawn)]
    found = {}
    for _, cell in table(records).iterrows() if naive(records) else ():
        if cell["n"]:
            key = (cell["dataset"], cell["attack"], cell["model"])
            found[key] = dict(zip(cell["seeds"], cell["values"], strict=True))
    assert found == naive(records)


def one(records: list[Record], attack: str = "speit", **options: Any) -> dict[Any, Any]:
    found = table(records, **options)
    (row,) = found[found["attack"] == attack].to_dict("records")
    return row


def test_settings_asked_for_again_count_and_the_others_are_named() -> None:
    old = [finished(seed=s, settings={"training": {"max_epochs": 10}}) for s in (0, 1)]
    new = finished(attacked=0.1, time="then")
    again = [new, *(also_asked(run, time="today") for run in old)]
    assert (one(again)["n"], one([*old, new])["n"]) == (2, 1)
    assert [mark.text for mark in one(again)["marks"]] == ["1 run of other settings left out"]


def test_a_failed_run_says_why_there_is_no_number() -> None:
    missing = failed("cora.npz: not found", "DataError", seed=1)
    cell = one([failed("loss is not finite"), missing])
    assert (cell["state"], cell["n"]) == ("failed", 0)
    texts = [mark.text for mark in cell["marks"]]
    assert texts == ["failed: loss is not finite", "no data: cora.npz: not found"]
    both = one([finished(), missing])
    assert (both["state"], both["n"]) == ("measured", 1)
    assert [mark.kind for mark in both["marks"]] == ["no data"]


def test_times_and_accuracies_are_never_taken_for_each_other() -> None:
    took = timed(0.01, experiment="table-3", dataset="cora", seed=1)
    elsewhere = timed(0.02, experiment="table-3", dataset="cora", seed=2, machine="another")
    both = [finished(), took]
    times = View(["dataset", "attack"], ["model"], value="seconds")
    assert one(both, "clean")["values"] == [75.0]
    found = one(both, "clean", view=times)
    assert (found["seeds"], found["mean"], found["q1"]) == ([1], 10, pytest.approx(9))
    assert one([*both, elsewhere], "clean", view=times)["seeds"] == [2]


def test_numbers_are_compared_with_printed_ones() -> None:
    values = [0.6, 0.62, 0.67]
    keys = {"dataset": ["cora"], "attack": ["speit"], "model": ["beltrami"]}
    printed = pd.DataFrame(keys | {"mean": [61.87], "std": [0.49], "nodes": [50], "edges": [4]})
    cell = one(seeds(values), view=View(BY_MODEL.rows, BY_MODEL.columns, printed=printed))
    std = 100 * statistics.stdev(values)
    assert (cell["mean"], cell["std"]) == (pytest.approx(63), pytest.approx(std))
    assert cell["deviations"] == pytest.approx((63 - 61.87) / math.sqrt((std**2 + 0.49**2) / 2))
    given = (63, std, 3, 61.87, 0.49, ASSUMED_RUNS)
    welch = stats.ttest_ind_from_stats(*given, equal_var=False).pvalue
    assert (cell["test"], cell["p"]) == ("welch", pytest.approx(welch))
    assert [mark.text for mark in cell["marks"]] == ["budget 50 x 50, reported 50 x 4"]
    alone = View(BY_MODEL.rows, BY_MODEL.columns, printed=printed.assign(std=math.nan))
    student = stats.ttest_1samp([100 * x for x in values], 61.87).pvalue
    assert one(seeds(values), view=alone)["p"] == pytest.approx(student)


def test_the_best_cells_share_a_rank_unless_their_attack_was_misled() -> None:
    flows = {"heat": 0.7, "grand": 0.7, "mean_curvature": 0.6, "beltrami": 0.9}
    records = [finished(0.8, accuracy, flow=flow) for flow, accuracy in flows.items()]
    records[-1] |= {"warnings": {"speit": ["changes no prediction"]}}
    ranked = table(records, View(["attack"], ["model"], best="row")).query("attack == 'speit'")
    assert ranked["rank"].fillna(0).tolist() == [1, 1, 2, 0]


WHITE = {"threat": "white_box", "surrogates": []}
OWN = [
    finished(0.8, {"speit": 0.4 + seed / 10}, seed=seed, attacks=("speit",), **WHITE)
    for seed in (0, 1)
]


def other(accuracy: float = 0.1, clean: float = 0.8, **options: Any) -> Record:
    """A run of another experiment under attack=auto."""
    given = {"experiment": "worst-case", "attacks": ("auto",), **WHITE, **options}
    return finished(clean, accuracy, **({"run": repr((accuracy, clean, given))} | given))


def stronger(*others: Record, own: list[Record] = OWN) -> list[str]:
    rows = narrow_frame([*own, *others])
    cell = cells(asked_by(rows, "table-3"), BY_MODEL, rows[rows["accuracy"].notna()])
    (marks,) = cell.loc[cell["attack"] == "speit", "marks"]
    return [mark.text for mark in marks]


def test_a_stronger_attack_on_the_same_models_is_named() -> None:
    text = "speit: {} reaches {} % on the same models ({}); not a bound"
    assert stronger(other(0.1, seed=0), other(0.2, seed=1)) == [
        text.format("attack=auto", "15.00", "seeds 0, 1")
    ]
    transferred = other(0.2, threat="black_box", surrogates=["gcn", "gat"])
    assert stronger(other(0.3, threat="adaptive"), transferred) == [
        text.format("attack=auto threat=adaptive", "30.00", "seed 0"),
        text.format("weaker than transfer: attack=auto crafted on gcn or gat", "20.00", "seed 0"),
    ]
    newer = other(0.1, attack_versions={"auto": 2})
    assert stronger(other(0.2), other(0.2, seed=1), newer) == [
        text.format("attack=auto", "10.00", "seed 0")
    ]


@pytest.mark.parametrize(
    "unlike",
    [
        {"seed": 2},
        {"clean": 0.81},
        {"threat": "poisoning", "surrogates": ["gcn"]},
        {"model": "gat"},
        {"dataset": "pubmed"},
        {"settings": {"training": {"max_epochs": 10}}},
        {"budget": (51, 50)},
        {"attacks": ("pgd_modification",)},
        {"flags": {"auto": ["budget_overspent"]}},
    ],
)
def test_other_models_and_larger_budgets_say_nothing(unlike: dict[str, Any]) -> None:
    assert stronger(other(budget=(5, 4)))
    assert not stronger(other(**unlike))


def test_any_features_say_nothing_of_words() -> None:
    own = [with_words(run) for run in OWN]
    assert stronger(with_words(other()), own=own)
    assert not stronger(other(), own=own)
