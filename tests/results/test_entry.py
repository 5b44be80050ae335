"""Entries that other records of the same trained models show to be no bounds."""

from typing import Any

import pytest

from robust_diffusion.results.entry import Reported, entry_of, stronger_attacks
from robust_diffusion.results.runs import Runs, select
from tests.paper.records import Record, finished
from tests.results.worst_cases import with_words

WHITE = {"threat": "white_box", "surrogates": []}
TABLE = [
    finished(0.8, {"speit": 0.4 + seed / 10}, seed=seed, attacks=("speit",), **WHITE)
    for seed in (0, 1)
]


def other(accuracy: float = 0.1, clean: float = 0.8, **options: Any) -> Record:
    """A run of another experiment under attack=auto."""
    given = {"experiment": "worst-case", "attacks": ("auto",), **WHITE, **options}
    given = {"run": repr((accuracy, clean, given)), **given}
    return finished(clean, accuracy, **given)


def marks(*others: Record, table: list[Record] = TABLE) -> list[str]:
    records = Runs([*table, *others])
    found = select(records.of("table-3"), {}, "speit")
    entry = entry_of({}, "speit", Reported(), found, comparable=True)
    made = list(stronger_attacks(entry, records))
    assert {mark.kind for mark in made} <= {"warning"}
    return [mark.text for mark in made]


def test_an_attack_that_does_more_on_the_same_model_is_named() -> None:
    assert marks(other(0.1, seed=0), other(0.2, seed=1)) == [
        "speit: attack=auto reaches 15.00 % on the same models (seeds 0, 1); not a bound"
    ]
    assert marks(other(0.45, seed=0), other(0.45, seed=1)) == [
        "speit: attack=auto reaches 45.00 % on the same models (seed 1); not a bound"
    ]


def test_transfer_has_a_mark_of_its_own() -> None:
    transferred = other(0.2, threat="black_box", surrogates=["gcn", "gat"])
    adaptive = other(0.3, threat="adaptive")
    assert marks(adaptive, transferred) == [
        "speit: attack=auto threat=adaptive reaches 30.00 % on the same models (seed 0); "
        "not a bound",
        "speit: weaker than transfer: attack=auto crafted on gcn or gat reaches 20.00 % on the "
        "same models (seed 0); not a bound",
    ]


@pytest.mark.parametrize(
    "unlike",
    [
        {"seed": 2},
        {"clean": 0.81},
        {"threat": "poisoning", "surrogates": ["gcn"]},
        {"model": "gat"},
        {"dataset": "pubmed"},
        {"settings": {"flow": {"heads": 1}}},
        {"settings": {"training": {"max_epochs": 10}}},
        {"budget": (51, 50)},
        {"budget": (50, 51)},
        {"attacks": ("pgd_modification",)},
        {"flags": {"auto": ["budget_overspent"]}},
    ],
)
def test_other_models_and_larger_budgets_say_nothing(unlike: dict[str, Any]) -> None:
    assert marks(other())
    assert marks(other(budget=(5, 4)))
    assert not marks(other(**unlike))


def test_modifications_of_edges_have_no_feature_range() -> None:
    used = {"gcn": {"changed_nodes": 1, "feature_range": None}}
    table, flips = (
        run | {"spent": {attack: used}} for run, attack in ((TABLE[0], "speit"), (other(), "auto"))
    )
    assert marks(flips, table=[table])


def test_any_features_say_nothing_of_words() -> None:
    table = [with_words(run) for run in TABLE]
    assert marks(with_words(other()), table=table)
    assert not marks(other(), table=table)
