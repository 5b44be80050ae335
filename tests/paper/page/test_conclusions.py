"""Conclusions, from cells of known accuracy."""

from typing import Any

import pytest

from robust_diffusion.paper.agreement import agreement
from robust_diffusion.paper.page.conclusions import conclude
from robust_diffusion.paper.page.worst import worst_case_cells, worst_case_tables
from robust_diffusion.paper.paper_table import build_tables
from robust_diffusion.results.cells import RecordSet
from tests.paper.page.study import mlps, worst_cases
from tests.paper.records import Record, finished

GROUPS = {"supported": [1, 2], "contradicted": [], "undecided": [3]}


def said(records: list[Record], fidelity: str = "paper") -> list[tuple[str, tuple[Any, ...]]]:
    """Sentences with plain spaces, and the basis of each."""
    counted = RecordSet.of(records, fidelity=fidelity)
    tables, worst = build_tables(counted), worst_case_cells(counted)
    of_tables, verdicts = agreement(list(tables.values())), {"groups": GROUPS}
    found = conclude(records, tables, worst, of_tables, verdicts, fidelity)
    return [(c.text.replace("\N{NO-BREAK SPACE}", " "), c.basis) for c in found]


def cells(model: str, clean: float, speit: float, tdgia: float) -> list[Record]:
    options = {"model": model, "experiment": "table-1"}
    attacked = {"speit": speit, "tdgia": tdgia}
    values = [(clean + d, {k: v + d for k, v in attacked.items()}) for d in (-0.01, 0.01)]
    return [finished(*found, seed=seed, **options) for seed, found in enumerate(values)]


NETWORKS = [
    *cells("graph_pde", 0.75, 0.6, 0.5),
    *cells("gat", 0.8, 0.4, 0.2),
    *cells("gin", 0.78, 0.3, 0.3),
    *cells("gnn_guard", 0.79, 0.78, 0.77),
]


def test_networks_are_compared_with_each_other_and_with_the_mlp() -> None:
    (networks, above, compared) = said([*NETWORKS, *mlps(2)])
    assert networks == (
        "Attacks made on another network take Beltrami from 75.00 % to 55.00 % on Cora, the "
        "average network without a defence (GAT, GIN) from 79.00 % to 30.00 %.",
        (1,),
    )
    assert above[0].startswith("An MLP, which no edge can hurt, has 60.00 % on the same targets; 1")
    assert above[0].endswith("1 of 4 models stay above it under each of these attacks (GNNGuard).")
    assert compared[0].endswith("tested: 2 supported, 0 contradicted, 1 undecided.")
    assert compared[1] == ("misses", "claims")


def test_the_worst_case_is_held_against_the_mlp_and_the_control() -> None:
    (best, control) = said(worst_cases(3))
    assert best == (
        "Under whichever attack hurts a model most, 0 of 3 models stay above the MLP on Cora; the "
        "best of them, BeltramiGuard, has 45.00 %, 15.00 points below the MLP (3 seeds).",
        ("worst_cases",),
    )
    # -5, -4 and -3 points; the interval of their mean is 4 +- 4.303 / sqrt(3).
    assert control[0] == (
        "In its worst case Beltrami is below its control, the same flow with a uniform "
        "modulation: −4.00 points (95 % interval −6.48 to −1.52, 3 seeds)."
    )


def test_an_interval_around_zero_tells_nothing_apart() -> None:
    (_, control) = said(worst_cases(2))
    assert "is not told apart from its control" in control[0]
    assert "2 seeds" in control[0]


@pytest.mark.parametrize("fidelity", ["paper", "released"])
def test_without_records_nothing_is_concluded(fidelity: str) -> None:
    assert said([] if fidelity == "paper" else [*NETWORKS, *worst_cases(2)], fidelity) == []


def test_both_tables_of_worst_cases_name_models_as_all_tables_do() -> None:
    models, paired = worst_case_tables(worst_cases(2))
    assert list(models.cells["model"])[:2] == ["MLP", "BeltramiGuard"]
    assert list(paired.cells["accuracy"]) == ["clean", "transfer", "worst"]
    assert worst_case_tables([]) == []
