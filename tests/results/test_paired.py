"""Two models compared by their worst cases."""

from typing import Any

from scipy import stats

from robust_diffusion.results.paired import compare_worst_cases
from tests.results.worst_cases import NEW, OLD, record

OWN, OTHER = (0.20, 0.24, 0.31), (0.10, 0.20, 0.24)


def cells(model: str, accuracies: tuple[float, ...], **options: Any) -> list[dict[str, Any]]:
    return [
        record("graph_pde", "white_box", seed, model, auto=accuracy, **options)
        for seed, accuracy in enumerate(accuracies)
    ]


BOTH = [*cells("beltrami", OWN), *cells("uniform_modulation", OTHER)]


def rows(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = compare_worst_cases(records, "beltrami", "uniform_modulation").cells
    return {row["accuracy"]: row for row in found.to_dict("records")}


def test_differences_are_paired_by_seed() -> None:
    worst = rows(BOTH[::-1])["worst"]
    assert (worst["beltrami"], worst["uniform_modulation"]) == ("25.00 ± 5.57", "18.00 ± 7.21")
    assert (worst["seeds"], worst["difference"]) == (3, "+7.00")
    assert worst["by seed"] == "+10.00, +4.00, +7.00"
    p = stats.ttest_rel(OWN, OTHER).pvalue  # the only test: the clean accuracies are all equal
    assert worst["p"] == f"{p:.2g}"
    assert worst["95 % interval"] == "−0.45 to +14.45"
    clean = rows(BOTH)["clean"]
    assert (clean["difference"], clean["95 % interval"], clean["p"]) == ("0.00", "-", "-")


def test_pairs_attacked_by_several_versions_are_not_averaged() -> None:
    found = rows([cell | OLD if cell["seed"] else cell for cell in BOTH])
    seeds = {kind: row["seeds"] for kind, row in found.items()}
    assert seeds == {"clean": 3, f"worst, auto {NEW}": 1, "worst, auto 4": 2}
