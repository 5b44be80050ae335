import json
import math

import pytest

from robust_diffusion.paper.claims import Claims, Judgement, RecordedEvidence, judge
from robust_diffusion.paper.claims.claim import parse_claim
from robust_diffusion.paper.claims.contrast import Moments, welch
from robust_diffusion.paper.claims.show import (
    as_frame,
    as_json,
    describe_effect,
    side_by_side,
    to_json,
)
from robust_diffusion.results.cells import RecordSet
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
    return judge(CLAIM, RecordedEvidence(RecordSet.of(records, fidelity="paper")), RULES)


def test_a_row_holds_verdict_effect_and_evidence() -> None:
    found = judged(beltrami=60, gat=40, gin=59.8)
    (row,) = as_frame([found], [judged()]).to_dict("records")
    assert row["claim"] == "better"
    assert row["the paper's words"] == "a is better"
    assert row["verdict"] == "not supported (no data: pubmed)"
    assert row["printed"] == "-"
    assert row["effect [95 % CI]"].startswith("+10.10 [+")
    assert row["n"] == "5"
    assert row["rests on"].startswith("1 of 4 hold, 1 undecided, 2 no data; weakest: cora vs gin ")
    assert row["place"] == "tab:adv"


def test_a_row_without_data_holds_no_number() -> None:
    (row,) = as_frame([judged()], [judged(beltrami=60, gat=40, gin=40)]).to_dict("records")
    assert row["verdict"] == "not enough data"
    assert row["printed"] == "supported"
    assert (row["effect [95 % CI]"], row["g"], row["p"], row["n"]) == ("-", "-", "-", "0")


def test_variants_stand_side_by_side_where_either_decides() -> None:
    up, down = judged(beltrami=60, gat=40, gin=40), judged(beltrami=30, gat=40, gin=40)
    frame = side_by_side({"paper": [up, judged()], "released": [down, judged()]}, [judged(), up])
    assert frame.to_dict("records") == [
        {
            "The paper's words": "a is better (better)",
            "paper": "✓ +20.0",
            "released": "✗ −10.0",
            "published": "-",
        }
    ]


def test_json_holds_every_member_and_is_strict() -> None:
    found = judged(beltrami=60, gat=40)
    (row,) = json.loads(to_json(as_json([found], [judged()])))
    assert row["verdict"] == "not enough data"
    assert [member["state"] for member in row["members"]] == ["holds", *["no data"] * 3]
    assert row["members"][0]["effect"]["value"] == pytest.approx(20)
    missing = row["members"][1]["missing"]
    assert missing == [
        {
            "experiment": "table-1",
            "measure": "accuracy",
            "attack": "speit",
            "dataset": "cora",
            "model": "gin",
        }
    ]
    assert row["effect"]["low"] < 20 < row["effect"]["high"]


@pytest.mark.parametrize(
    ("effect", "said"),
    [
        (24.374999999999996, "+24.38"),
        (24.375000000000004, "+24.38"),
        (-0.1249999999999999, "-0.12"),
        (3.0049, "+3.00"),
    ],
)
def test_the_last_bit_is_not_shown(effect: float, said: str) -> None:
    found = describe_effect(welch([(1.0, Moments(effect, 0.0, 5))]), "points")
    assert found == f"{said} [{said}, {said}]"


def test_factors_are_factors() -> None:
    logs = [(1.0, Moments(math.log(6), 0.0, 3)), (-1.0, Moments(math.log(2), 0.0, 3))]
    assert describe_effect(welch(logs), "factor") == "×3.00 [3.00, 3.00]"
    assert describe_effect(None, "points") == "-"
