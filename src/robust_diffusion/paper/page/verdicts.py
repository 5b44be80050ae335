"""Verdicts on the paper's claims, as the page shows them."""

from functools import cache
from typing import Any

from robust_diffusion.paper.claims import (
    Claims,
    Judgement,
    PublishedEvidence,
    RecordedEvidence,
    judge,
    load_claims,
)
from robust_diffusion.paper.claims.show import as_frame, describe_effect
from robust_diffusion.results.cells import RecordSet

VERDICTS = ("supported", "not supported", "not enough data")

FACTS = {
    "by the paper's own numbers": "printed",
    "effect [95 % CI]": "effect [95 % CI]",
    "Hedges' g": "g",
    "p": "p",
    "seeds": "n",
    "rests on": "rests on",
    "place": "place",
}
"""Facts that the page gives about a claim, and their columns in the table of claims."""


def judge_all(records: RecordSet) -> dict[str, Any]:
    """Judge every claim by the records that count.

    Returns:
        `alpha`: level of the tests; `groups`: claims by verdict; `elsewhere`: quotes that records
        cannot decide, and where they are discussed.
    """
    claims, published = _by_the_paper()
    evidence = RecordedEvidence(records)
    judged = [judge(claim, evidence, claims) for claim in claims.claims.values()]
    rows = as_frame(judged, published).to_dict("records")
    shown = [_shown(judgement, row) for judgement, row in zip(judged, rows, strict=True)]
    return {
        "alpha": claims.alpha,
        "groups": {v: [claim for claim in shown if claim["verdict"] == v] for v in VERDICTS},
        "elsewhere": claims.elsewhere,
    }


@cache
def _by_the_paper() -> tuple[Claims, tuple[Judgement, ...]]:
    """The claims, judged by the paper's own numbers; neither changes."""
    claims, evidence = load_claims(), PublishedEvidence()
    return claims, tuple(judge(claim, evidence, claims) for claim in claims.claims.values())


def _shown(judgement: Judgement, row: dict[Any, Any]) -> dict[str, Any]:
    facts = {name: row[column] for name, column in FACTS.items()}
    facts["no data"] = ", ".join(judgement.absent) or "-"
    several = len(judgement.findings) > 1
    return {
        "claim": judgement.claim,
        "verdict": judgement.verdict,
        "facts": {name: text for name, text in facts.items() if text != "-"},
        "findings": [
            (finding.label, finding.state, describe_effect(finding.estimate, judgement.unit))
            for finding in judgement.findings
            if several and finding.state != "no data"
        ],
    }
