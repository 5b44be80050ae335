import math
from typing import Any

import pytest
from scipy import stats

from robust_diffusion.records.record import Record
from robust_diffusion.results.comparison import compare_settings, compare_worst_cases
from robust_diffusion.results.frame import frame
from robust_diffusion.results.show import show
from tests.paper.records import finished
from tests.results.worst_cases import NEW, OLD, record
from tests.tables import rows_of

EXPERIMENT = "readings"


def cells(values: list[tuple[float, float]], **overrides: str) -> list[Record]:
    """Per seed a record with these clean and attacked accuracies, at t_end that tells it apart."""
    own = {"dataset": "cora", **overrides}
    settings = {"flow": {"told": repr(own)}}
    return [
        finished(c, a, experiment=EXPERIMENT, seed=s, overrides=own, settings=settings)
        for s, (c, a) in enumerate(values)
    ]


BASE = cells([(0.70, 0.60), (0.72, 0.61), (0.74, 0.63)], fidelity="paper")
SWITCHED = cells(
    [(0.71, 0.50), (0.74, 0.52), (0.77, 0.51)], fidelity="paper", **{"fidelity.num_steps": "1"}
)


def test_changes_are_paired_by_seed() -> None:
    table = compare_settings(BASE + SWITCHED)
    base, switched = table.cells.to_dict("records")
    assert (base["setting"], base["seeds"]) == ("(baseline)", 3)
    assert (base["clean"], base["clean ±"]) == (pytest.approx(72), pytest.approx(2))
    assert math.isnan(base["change in clean"])
    assert switched["setting"] == "num_steps=1"
    p = stats.ttest_rel([0.71, 0.74, 0.77], [0.70, 0.72, 0.74]).pvalue
    assert (switched["change in clean"], switched["change in clean p"]) == pytest.approx((2, p))
    assert rows_of(show(table))[1]["change in clean"] == f"+2.00 (p {p:.2g})"


def test_the_nearest_setting_is_departed_from() -> None:
    both = {"fidelity.num_steps": "1", "flow.heads": "2"}
    records = BASE + SWITCHED + cells([(0.5, 0.4)], fidelity="paper", **both)
    *_, last = compare_settings(records).cells.to_dict("records")
    assert last["setting"] == "fidelity.num_steps=1: heads=2"
    assert last["change in clean"] == pytest.approx(-21)
    grand = {"fidelity": "paper", "flow": "grand"}  # of the same flow first
    rewiring = {"fidelity.rewiring": "{_target_:some.where.Rewiring,keep_ratio:0.5}"}
    records += cells([(0.8, 0.7)] * 2, **grand) + cells([(0.6, 0.5)] * 2, **grand, **rewiring)
    *_, last = compare_settings(records).cells.to_dict("records")
    assert last["setting"] == "flow=grand: rewiring={keep_ratio:0.5}"
    assert last["change in clean"] == pytest.approx(-20)
    assert math.isnan(last["change in clean p"])  # equal ones have no spread to be tested by


OWN, OTHER = (0.20, 0.24, 0.31), (0.10, 0.20, 0.24)


def against(model: str, accuracies: tuple[float, ...], **options: Any) -> list[Record]:
    return [
        record("graph_pde", "white_box", seed, model, auto=accuracy, **options)
        for seed, accuracy in enumerate(accuracies)
    ]


BOTH = [*against("beltrami", OWN), *against("uniform_modulation", OTHER)]


def rows(records: list[Record]) -> dict[str, dict[str, Any]]:
    found = compare_worst_cases(frame(records), "beltrami", "uniform_modulation").cells
    return {row["accuracy"]: row for row in found.to_dict("records")}


def test_differences_are_paired_by_seed() -> None:
    worst = rows(BOTH[::-1])["worst"]
    means = [worst[name] for name in ("beltrami", "beltrami ±", "difference")]
    assert means == pytest.approx([25, 5.57, 7], abs=0.01)
    assert (worst["seeds"], worst["by seed"]) == (3, (10, 4, 7))
    p = stats.ttest_rel(OWN, OTHER).pvalue  # the only test: the clean accuracies are all equal
    assert worst["p"] == pytest.approx(p)
    shown = rows_of(show(compare_worst_cases(frame(BOTH), "beltrami", "uniform_modulation")))
    assert shown[1]["95 % interval"] == "−0.45 to +14.45"
    assert shown[1]["by seed"] == "+10.00, +4.00, +7.00"
    assert [shown[0][name] for name in ("difference", "95 % interval", "p")] == ["0.00", "-", "-"]


def test_pairs_attacked_by_several_versions_are_not_averaged() -> None:
    found = rows([cell | OLD if cell.seed else cell for cell in BOTH])
    seeds = {kind: row["seeds"] for kind, row in found.items()}
    assert seeds == {"clean": 3, f"worst, auto {NEW}": 1, "worst, auto 4": 2}


def test_models_attacked_by_two_versions_are_not_compared_without_a_word() -> None:
    def worst(other: list[Record]) -> str:
        found = compare_worst_cases(frame([*BOTH[:3], *other]), "beltrami", other[0].flow or "mlp")
        return str(found.cells["accuracy"].iloc[-1])

    assert worst([run | OLD for run in BOTH[3:]]) == f"worst, auto {NEW} and 4"
    unknown = [record("graph_pde", "white_box", seed, "grand", pgd=0.1) for seed in range(3)]
    assert worst(unknown) == f"worst, auto {NEW} and none"
    assert worst([record("mlp", seed=seed, auto=0.7) for seed in range(3)]) == "worst"


def test_the_newest_version_stands_first() -> None:
    newest = {"attack_versions": {"auto": 10}}
    found = rows([run | (newest if run.seed else OLD) for run in BOTH])
    assert list(found)[1:] == ["worst, auto 10", "worst, auto 4"]


def test_flags_of_a_seed_of_one_model_alone_mark_no_comparison() -> None:
    alone = against("beltrami", (*OWN, 0.5))[-1] | {"flags": {"auto": ["no_effect"]}}
    table = compare_worst_cases(frame([*BOTH, alone]), "beltrami", "uniform_modulation")
    both = compare_worst_cases(frame(BOTH), "beltrami", "uniform_modulation")
    assert table.cells.equals(both.cells)
    assert not table.notes


@pytest.mark.parametrize("changed", [{"dataset": "cora"}, {"difficulty": "full"}])
def test_accuracies_on_other_nodes_are_not_subtracted(changed: dict[str, str]) -> None:
    def of(accuracy: float, on: dict[str, str], **overrides: str) -> list[Record]:
        runs = cells([(accuracy, accuracy)] * 3)
        own = {**on, "overrides": overrides}
        return [run | own | {"run": repr((own, run.seed))} for run in runs]

    default = {"dataset": "synthetic"} if "dataset" in changed else {}
    runs = of(0.9, default) + of(0.8, changed, **changed)
    runs += of(0.7, changed, **changed, **{"flow.heads": "2"})
    found = compare_settings(runs).cells.set_index("setting")["change in clean"]
    assert list(found) == pytest.approx([math.nan, math.nan, -10], nan_ok=True)
