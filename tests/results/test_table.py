from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest

from robust_diffusion.results.captions import describe_cuts
from robust_diffusion.results.table import ResultTable, rank, summarize
from tests.paper.records import Record, failed, finished, timed


def record(flow: str | None = "heat", seed: int = 0, clean: float = 0.5, **changes: Any) -> Record:
    own = {"overrides": {"flow": str(flow)}, "attacks": ("speit",), **changes}
    return finished(clean, clean / 2, flow=flow, seed=seed, **own)


broken = partial(failed, flow="heat", overrides={"flow": "heat"}, val_accuracy=None)


def rows(records: list[Record]) -> list[dict[str, Any]]:
    return summarize(records).cells.to_dict("records")  # type: ignore[return-value]


def test_a_failed_seed_is_counted_beside_the_mean() -> None:
    (row,) = rows([record(seed=0), broken(seed=1)])
    assert (row["clean"], row["seeds"]) == ("50.00 (1 failed)", 1)
    (row,) = rows([broken(seed=0), record(seed=0)])  # it finished later
    assert (row["clean"], row["seeds"]) == ("50.00", 1)


def test_a_sweep_of_which_no_run_finished_shows_its_failures() -> None:
    assert rows([broken(seed=seed) for seed in range(2)]) == [
        {"flow": "heat", "seeds": 0, "clean": "failed"}
    ]


def test_a_warning_names_its_model_where_there_are_several() -> None:
    told = {"flags": {"speit": ["diverged"]}, "warnings": {"speit": ["it blows up"]}}
    warned = record("hang", **told)
    assert summarize([warned]).notes == ["! speit, seed 0: it blows up"]
    assert summarize([record("heat"), warned]).notes == ["! hang, speit, seed 0: it blows up"]


@pytest.mark.parametrize(
    ("attack", "code", "marked"),
    [("speit", "one_class", False), ("speit", "diverged", True), ("auto", "one_class", True)],
)
def test_a_weak_attack_is_named_once_unless_it_claims_a_worst_case(
    attack: str, code: str, *, marked: bool
) -> None:
    told = {"flags": {attack: [code]}, "warnings": {attack: ["97 % of one class"]}}
    table = summarize([record(seed=seed, attacks=(attack,), **told) for seed in (0, 1)])
    assert table.cells[attack].iloc[0].endswith("!") == marked
    assert [note[0] == "!" for note in table.notes] == ([True] * 2 if marked else [False])


@pytest.mark.parametrize("show", [summarize, rank])
def test_a_seed_counts_once_per_row(show: Callable[[list[Record]], ResultTable]) -> None:
    # What the swept flow is, a GCN does not read: one run, asked for twice.
    swept = []
    for model, (flow, heads) in product(("gcn", "graph_pde"), (("heat", "1"), ("beltrami", "2"))):
        given = {"model": model, "flow": flow, "flow.heads": heads}
        read = None if model == "gcn" else flow
        swept.append(record(read, model=model, overrides=given, val_accuracy=0.5))
    cells = show(swept).cells
    (gcn,) = cells[cells["model"] == "gcn"].to_dict("records")
    assert gcn["seeds"] == 1
    assert not any("±" in str(value) for value in gcn.values())
    assert len(cells) == 3


def test_times_have_a_column_of_their_own() -> None:
    timings = [timed(0.01, seed=0), timed(0.012, seed=1), timed(0.02, flow="heat")]
    table = summarize(timings)
    assert table.title == (
        "citeseer: time of one diffusion, median and quartiles; a processor; fidelity=paper"
    )
    assert [row["ms per step"] for row in rows(timings)] == ["11 (9.9–12.1)", "20 (18–22)"]
    assert "clean" not in table.cells
    took, tested = rows([timed(0.01, flow="grand"), record("heat")])
    assert (took["clean"], took["ms per step"]) == ("-", "10 (9–11)")
    assert (tested["clean"], tested["ms per step"]) == ("50.00", "-")


def test_ranked_by_validation_accuracy_with_failures_last() -> None:
    records = [
        broken(),
        record("grand", val_accuracy=0.5),
        record("beltrami", val_accuracy=0.6),
        record("beltrami", seed=1, val_accuracy=0.8),
    ]
    ranked = rank(records)
    assert ranked.cells.to_dict("records") == [
        {"flow": "beltrami", "seeds": 2, "validation": "70.00 ± 14.14"},
        {"flow": "grand", "seeds": 1, "validation": "50.00"},
        {"flow": "heat", "seeds": 0, "validation": "failed"},
    ]
    assert "clean validation nodes" in ranked.title


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
