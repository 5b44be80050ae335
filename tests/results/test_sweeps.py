from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pandas as pd
import pytest

from robust_diffusion.evaluation.flag_codes import DECLARED, remedy_of
from robust_diffusion.results.budgets import describe_cuts
from robust_diffusion.results.show import Table, show
from robust_diffusion.results.sweeps import accuracies, ranking
from tests.paper.records import Record, failed, finished, timed
from tests.tables import rows_of


def record(flow: str | None = "heat", seed: int = 0, clean: float = 0.5, **changes: Any) -> Record:
    own = {"overrides": {"flow": str(flow)}, "attacks": ("speit",), **changes}
    return finished(clean, clean / 2, flow=flow, seed=seed, **own)


broken = partial(failed, flow="heat", overrides={"flow": "heat"}, val_accuracy=None)


def rows(records: list[Record]) -> list[dict[str, str]]:
    return rows_of(show(accuracies(records)))


def test_a_failed_seed_is_counted_beside_the_mean() -> None:
    (row,) = rows([record(seed=0), broken(seed=1)])
    assert (row["clean"], row["seeds"]) == ("50.00 (1 failed)", "1")
    (row,) = rows([broken(seed=0), record(seed=0)])  # it finished later
    assert (row["clean"], row["seeds"]) == ("50.00", "1")


def test_a_sweep_of_which_no_run_finished_shows_its_failures() -> None:
    assert rows([broken(seed=seed) for seed in range(2)]) == [
        {"flow": "heat", "seeds": "0"} | dict.fromkeys(["clean", "speit", "tdgia"], "failed")
    ]


def test_a_warning_names_its_model_where_there_are_several() -> None:
    told = {"flags": {"speit": ["diverged"]}, "warnings": {"speit": ["it blows up"]}}
    warned = record("hang", **told)
    (alone,), (one_of_two,) = accuracies([warned]).notes, accuracies([record("heat"), warned]).notes
    assert alone.startswith("! speit, seed 0: it blows up")
    assert one_of_two.startswith("! hang, speit, seed 0: it blows up")


@pytest.mark.parametrize("code", DECLARED)
@pytest.mark.parametrize("attack", ["speit", "auto"])
def test_a_flag_leads_to_its_remedy_once(attack: str, code: str) -> None:
    told = {"flags": {attack: [code]}, "warnings": {attack: ["it was seen"]}}
    runs = [record(seed=seed, attacks=(attack,), **told) for seed in (0, 1)]
    remedy = remedy_of(code, attack)
    assert "".join(accuracies(runs).notes).count(f"it was seen (to do: {remedy})") == 1
    assert ("num_steps=300" in remedy) == (f"attacks.{attack}.num_steps=300" in remedy)


def test_what_holds_for_the_graph_of_all_models_is_said_once() -> None:
    told: dict[str, Any] = {"flags": {"speit": ["budget_overspent"]}}
    warned = [
        record(flow, seed, warnings={"speit": [f"{9 + seed} features are out of range"]}, **told)
        for flow in ("heat", "grand")
        for seed in (0, 1)
    ]
    (note,) = accuracies(warned).notes
    assert note.startswith(
        "! speit, seeds 0, 1: 9 features are out of range (other numbers elsewhere)"
    )


@pytest.mark.parametrize(
    ("attack", "code", "marked"),
    [("speit", "one_class", False), ("speit", "diverged", True), ("auto", "one_class", True)],
)
def test_a_weak_attack_is_named_once_unless_it_claims_a_worst_case(
    attack: str, code: str, *, marked: bool
) -> None:
    told = {"flags": {attack: [code]}, "warnings": {attack: ["97 % of one class"]}}
    table = accuracies([record(seed=seed, attacks=(attack,), **told) for seed in (0, 1)])
    assert table.cells[f"{attack} !"].iloc[0] == marked
    assert [note[0] == "!" for note in table.notes] == [marked]


@pytest.mark.parametrize("tabulate", [accuracies, ranking])
def test_a_seed_counts_once_per_row(tabulate: Callable[[list[Record]], Table]) -> None:
    # What the swept flow is, a GCN does not read: one run, asked for twice.
    swept = []
    for model, (flow, heads) in product(("gcn", "graph_pde"), (("heat", "1"), ("beltrami", "2"))):
        given = {"model": model, "flow": flow, "flow.heads": heads}
        read = None if model == "gcn" else flow
        swept.append(record(read, model=model, overrides=given, val_accuracy=0.5))
    cells = tabulate(swept).cells
    (gcn,) = cells[cells["model"] == "gcn"].to_dict("records")
    assert gcn["seeds"] == 1
    assert pd.isna([of for column, of in gcn.items() if column.endswith("±")]).all()
    assert len(cells) == 3


def test_times_have_a_column_of_their_own() -> None:
    timings = [timed(0.01, seed=0), timed(0.012, seed=1), timed(0.02, flow="heat")]
    table = accuracies(timings)
    assert table.caption == (
        "citeseer: time of one diffusion, median and quartiles; a processor; fidelity=paper"
    )
    assert [row["ms per step"] for row in rows(timings)] == ["11.0 (9.9–12.1)", "20.0 (18.0–22.0)"]
    assert "clean" not in table.cells
    tested, took = rows([timed(0.01, flow="grand"), record("heat")])
    assert (took["clean"], took["ms per step"]) == ("-", "10.0 (9.0–11.0)")
    assert (tested["clean"], tested["ms per step"]) == ("50.00", "-")


def test_ranked_by_validation_accuracy_with_failures_last() -> None:
    records = [
        broken(),
        record("grand", val_accuracy=0.5),
        record("beltrami", val_accuracy=0.6),
        record("beltrami", seed=1, val_accuracy=0.8),
    ]
    ranked = ranking(records)
    assert rows_of(show(ranked)) == [
        {"flow": "beltrami", "seeds": "2", "validation": "70.00 ± 14.14"},
        {"flow": "grand", "seeds": "1", "validation": "50.00"},
        {"flow": "heat", "seeds": "0", "validation": "failed"},
    ]
    assert "clean validation nodes" in ranked.caption


def test_a_setting_that_was_not_typed_is_that_of_the_run() -> None:
    grand = record("grand", settings={"flow": {"rate": 1.0}})
    slow = record("grand", settings={"flow": {"rate": 0.5}}, overrides={"flow.rate": "0.5"})
    found = rows([grand, slow, record("heat")])
    assert [row["flow.rate"] for row in found] == ["1", "0.5", "-"]


@pytest.mark.parametrize(
    ("limit", "patience", "cuts"),
    [
        (200, 500, ["training cut at 200 epochs"]),
        (1000, 500, []),
        (8000, 9000, ["training cut at 8000 epochs"]),
        (1000, 50, ["early stopping after 50 epochs, not 500"]),
    ],
)
def test_a_shortened_training_is_named(limit: int, patience: int, cuts: list[str]) -> None:
    training = {"max_epochs": limit, "patience": patience}
    assert describe_cuts([finished(settings={"training": training})]) == cuts


def mlp(clean: float, seed: int = 0, **overrides: str) -> Record:
    own = {"overrides": {"model": "mlp", "attack": "none", **overrides}, "attacks": ()}
    return finished(clean, model="mlp", flow=None, seed=seed, **own)


def test_the_table_of_attacked_models_ends_with_the_mlp() -> None:
    models = [record(flow, seed) for flow in ("heat", "hang") for seed in (0, 1)]
    *attacked, last = rows([*models, mlp(0.6, 0), mlp(0.7, 1)])
    assert attacked == rows(models)  # no column is added
    assert last == {"flow": "mlp", "seeds": "2"} | dict.fromkeys(("clean", "speit"), "65.00 ± 7.07")
    assert accuracies([*models, mlp(0.6)]).notes[-1].startswith("mlp: trained in this sweep")
    # An attack on the features of nodes reaches an MLP, too.
    spent = {"spent": {"speit": {"victim": {"changed_nodes": 3}}}}
    *_, last = rows([record(**spent), mlp(0.6)])
    assert (last["clean"], last["speit"]) == ("60.00", "-")
    assert rows([record(attacks=()), mlp(0.6)])[1]["clean"] == "60.00"  # a model like others


def test_the_mlp_of_a_sweep_over_other_keys_is_named_beside_them() -> None:
    def steps(number: int) -> Record:
        return record(overrides={"solver.num_steps": str(number)})

    *_, last = rows([steps(2), steps(4), mlp(0.6)])
    assert last["solver.num_steps"] == "mlp"
    named = [record(dataset=name, overrides={"dataset": name}) for name in ("a", "b")]
    *_, last = rows([*named, mlp(0.6, dataset="a") | {"dataset": "a"}])
    assert last["dataset"] == "a, mlp"
