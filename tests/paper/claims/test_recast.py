from typing import Any

import pytest

from robust_diffusion.paper.claims import judge, load_claims, recorded_evidence
from robust_diffusion.paper.claims.claim import parse_claim
from robust_diffusion.paper.claims.judgement import Judgement
from robust_diffusion.paper.claims.recast import against_mlp, under_worst_case
from tests.paper.claims.synthetic import records_of, with_moments

EVERY = load_claims()
CORA = {"dataset": "cora"}
KEYS: dict[str, Any] = {
    "quote": "words",
    "place": "tab:adv",
    "test": "greater",
    "select": {"experiment": "table-1"} | CORA,
    "each": {"attack": ["speit", "tdgia"], "right.model": ["gat", "gin"]},
    "left": {"model": "beltrami"},
    "right": {},
}
CLAIM = parse_claim("better", KEYS)


def accuracies(model: str, mean: float) -> list[dict[str, Any]]:
    graphs = {
        attack: with_moments(mean, 1, 5, seed) for seed, attack in enumerate(("speit", "tdgia"))
    }
    return records_of("table-1", {"model": model} | CORA, graphs)


def decide(*groups: list[dict[str, Any]]) -> Judgement:
    records = [record for group in groups for record in group]
    return judge(CLAIM, recorded_evidence(records, fidelity="paper"), EVERY)


@pytest.mark.parametrize(
    ("mlp", "verdict"), [(50, "supported"), (61, "undecided"), (70, "contradicted")]
)
def test_the_mlp_takes_the_place_of_the_others(mlp: float, verdict: str) -> None:
    # It sees no edge: its clean accuracy counts, of whatever variant it was run as.
    control = records_of(
        "mlp", {"model": "mlp"} | CORA, {"clean": with_moments(mlp, 1, 5, 7)}, fidelity="released"
    )
    models = accuracies("beltrami", 60), accuracies("gat", 30), accuracies("gin", 30)
    found = decide(*models, control).mlp
    assert found is not None
    assert (found.verdict, [f.label for f in found.findings]) == (verdict, ["speit", "tdgia"])
    assert found.estimate is not None
    assert found.estimate.effect == pytest.approx(60 - mlp)
    without = decide(*models).mlp
    assert without is not None
    assert (without.verdict, without.shown) == ("undecided", None)


def worst_case(
    model: str, worst: list[float], *, experiment: str = "worst-case", threat: str = "white_box"
) -> list[dict[str, Any]]:
    # Of two attacks the one that hurts more counts, whatever the table's cells say.
    graphs = {"clean": [80.0] * len(worst), "speit": [70.0] * len(worst), "auto": worst}
    return records_of(
        experiment,
        {"model": model} | CORA,
        graphs,
        threat=threat,
        split="one",
        **({} if model == "beltrami" else {"flow": None}),
    )


@pytest.mark.parametrize(("seeds", "verdict"), [(2, "undecided"), (5, "contradicted")])
def test_the_worst_case_takes_the_place_of_each_attack(seeds: int, verdict: str) -> None:
    tables = accuracies("beltrami", 60), accuracies("gat", 30), accuracies("gin", 30)
    cells = [
        worst_case("beltrami", with_moments(20, 1, seeds, 1)),
        worst_case("gat", with_moments(30, 1, seeds, 2), experiment="worst-case-models"),
        worst_case("gin", with_moments(5, 1, seeds, 3), experiment="worst-case-models"),
        # Seeds of which the model itself was not attacked yet.
        worst_case("gin", [0.0] * 9, threat="black_box")[seeds:],
    ]
    judged = decide(*tables, *cells)
    found = judged.worst_case
    assert judged.verdict == "supported"
    assert found is not None
    assert (found.verdict, [f.label for f in found.findings]) == (
        verdict,
        ["worst vs gat", "worst vs gin"],
    )
    if seeds == 5:
        assert [f.state for f in found.findings] == ["contradicted", "holds"]
        assert found.estimate is not None
        assert found.estimate.effect == pytest.approx(-10)
        assert found.seeds == (5, 5)


def recast(name: str, by: Any) -> list[str]:
    claim = EVERY.claims[name]
    return [member.label for member in by(claim, claim.members())]


def test_only_claims_about_models_under_attack_are_recast() -> None:
    assert recast("white-box-beats-baselines", against_mlp)[:2] == ["cora speit", "cora tdgia"]
    assert recast("guard-in-vain", under_worst_case) == [
        "cora worst",
        "citeseer worst",
        "pubmed worst",
    ]
    # An attack against none; a model against itself with an option; a cost; a spread.
    for name in (
        "guard-in-vain",
        "lipschitz-helps",
        "dopri5-costs-more",
        "edge-preserving-varies-less",
    ):
        assert not recast(name, against_mlp)
    # Layers and budgets that the worst cases do not have; a cost; a clean accuracy.
    for name in (
        "lipschitz-helps",
        "insensitive-to-budget",
        "dopri5-costs-more",
        "needs-more-layers",
    ):
        assert not recast(name, under_worst_case)
