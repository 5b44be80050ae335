import json
import math
from dataclasses import replace
from typing import Any

import pytest

from robust_diffusion.paper.claims import Claims, Judgement, Row, judge, recorded_evidence
from robust_diffusion.paper.claims.claim import parse_claim
from robust_diffusion.paper.claims.contrast import Moments, welch
from robust_diffusion.paper.claims.show import (
    as_json,
    describe_basis,
    describe_interval,
    front_table,
    in_short,
    render_claims,
    to_json,
)
from tests.paper.claims.synthetic import records_of, with_moments

RULES = Claims(alpha=0.05, min_seeds=3, claims={}, elsewhere={})
CLAIM = parse_claim(
    "better",
    {
        "quote": "a is better",
        "place": "tab:adv",
        "test": "greater",
        "select": {"experiment": "table-1", "attack": "speit"},
        "each": {"dataset": ["cora", "pubmed"], "right.model": ["gat", "gin"]},
        "left": {"model": "beltrami"},
        "right": {},
    },
)


def judged(**means: float) -> Judgement:
    records = [
        record
        for model, mean in means.items()
        for record in records_of(
            "table-1",
            {"model": model, "dataset": "cora"},
            {"speit": with_moments(mean, 1.0, 5, seed=len(model))},
        )
    ]
    return judge(CLAIM, recorded_evidence(records, fidelity="paper"), RULES)


def row(**columns: Judgement | None) -> Row:
    return Row(CLAIM, ("cora",), columns)


def test_a_cell_holds_verdict_comparisons_and_weakest_effect() -> None:
    found = in_short(judged(beltrami=60, gat=40, gin=63))
    assert found[:2] == ["contradicted", "1 of 2 hold, 1 contradicted"]
    assert found[2].startswith("weakest \N{MINUS SIGN}3.0 [\N{MINUS SIGN}4.")
    assert len(found) == 3  # there is no MLP
    assert in_short(judged(beltrami=60, gat=40))[:2] == [
        "undecided",
        "1 of 2 hold, 1 too few seeds",
    ]
    assert in_short(judged()) == ["no data"]
    assert in_short(None) == ["-"]


def test_a_cell_holds_the_comparisons_with_an_mlp() -> None:
    found = judged(beltrami=60, gat=40, gin=40)
    assert in_short(replace(found, mlp=judged(beltrami=60, gat=65, gin=40)))[-1] == (
        "MLP: 1 of 2 hold, 1 contradicted"
    )


def test_an_average_shows_its_mean() -> None:
    average = replace(CLAIM, over="average")
    records = [
        record
        for model, mean in (("beltrami", 60), ("gat", 40), ("gin", 50))
        for record in records_of(
            "table-1",
            {"model": model, "dataset": "cora"},
            {"speit": with_moments(mean, 1, 5, mean)},
        )
    ]
    found = in_short(judge(average, recorded_evidence(records, fidelity="paper"), RULES))
    assert found[:2] == ["supported", "2 of 2 parts hold"]
    assert found[2].startswith("mean +15.0 [")


def test_front_claims_come_first_under_their_titles() -> None:
    front = replace(RULES, claims={"better": CLAIM}, front={"better": "A wins"})
    other = replace(CLAIM, name="other", quote="b is better")
    up = judged(beltrami=60, gat=40, gin=40)
    rows = [
        row(paper=up, published=judged()),
        Row(other, ("cora",), {"paper": up, "published": None}),
    ]
    text = render_claims(rows, front, worst_of="paper")
    first, others = text.split("The others")
    assert "| A wins" in first
    assert "Cora; margin 0" in first
    assert "**supported**<br>2 of 2 hold<br>weakest +20.0 [" in first
    assert front_table(rows, front) in first
    assert "b is better" in others
    assert "A wins" not in others


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"margin": -2.0}, "Cora; margin \N{MINUS SIGN}2"),
        ({"test": "equivalent", "margin": 2}, "Cora; margin ±2"),
    ],
)
def test_the_margin_is_told(change: dict[str, Any], said: str) -> None:
    assert describe_basis(replace(CLAIM, **change), ["cora"]) == said


def test_json_holds_every_comparison_and_is_strict() -> None:
    (found,) = json.loads(to_json(as_json([row(paper=judged(beltrami=60, gat=40))])))
    paper = found["columns"]["paper"]
    assert (paper["verdict"], paper["absent"]) == ("undecided", ["pubmed"])
    holds, untested = paper["comparisons"]
    assert (holds["state"], untested["state"]) == ("holds", "too few seeds")
    assert holds["effect"]["value"] == pytest.approx(20)
    (missing,) = untested["missing"]
    assert missing.pop("measure") == "accuracy"
    axes = {"attack": "speit", "dataset": "cora", "model": "gin"}
    assert missing == {"experiment": "table-1", **axes}
    assert paper["shown"]["effect"]["low"] < 20 < paper["shown"]["effect"]["high"]


@pytest.mark.parametrize(
    ("effect", "said"),
    [(24.374999999999996, "+24.38"), (-0.1249999999999999, "\N{MINUS SIGN}0.12")],
)
def test_the_last_bit_is_not_shown(effect: float, said: str) -> None:
    found = describe_interval(welch([(1.0, Moments(effect, 0.0, 5))]), "points")
    assert found == f"{said} [{said}, {said}]"


def test_factors_are_factors() -> None:
    logs = [(1.0, Moments(math.log(6), 0.0, 3)), (-1.0, Moments(math.log(2), 0.0, 3))]
    assert describe_interval(welch(logs), "factor") == "×3.00 [3.00, 3.00]"
    assert describe_interval(None, "points") == "-"
