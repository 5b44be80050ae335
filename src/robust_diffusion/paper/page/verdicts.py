"""The paper's claims and what became of them, in words for the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.claims import (
    Claims,
    Judgement,
    PrintedEvidence,
    RecordedEvidence,
    judge,
    load_claims,
)
from robust_diffusion.paper.claims.show import as_frame, describe_effect

VERDICTS = ("supported", "not supported", "not enough data")


@dataclass(frozen=True)
class ShownClaim:
    """One claim.

    Args:
        name: Its own.
        quote: The paper's words.
        verdict: By the records.
        reading: How the sentence is read, if that is a choice.
        facts: What is known of it, name -> text.
        findings: Per statement its label, state and effect.
    """

    name: str
    quote: str
    verdict: str
    reading: str
    facts: dict[str, str]
    findings: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Verdicts:
    """All claims.

    Args:
        alpha: Level of the tests, in 0..1.
        groups: Verdict -> its claims.
        elsewhere: Sentences that records cannot decide: quote -> where they are looked at.
    """

    alpha: float
    groups: dict[str, tuple[ShownClaim, ...]]
    elsewhere: dict[str, str]


def judge_all(records: Sequence[Record], *, fidelity: str) -> Verdicts:
    """Judge every claim by the records.

    Args:
        records: In the order in which they were appended; smoke runs do not count.
        fidelity: Which reading of the paper counts.
    """
    claims, printed = _by_the_paper()
    evidence = RecordedEvidence(records, fidelity=fidelity)
    found = [judge(claim, evidence, claims) for claim in claims.claims.values()]
    rows = as_frame(found, printed).to_dict("records")
    shown = [
        _shown(judgement, {str(key): str(value) for key, value in row.items()})
        for judgement, row in zip(found, rows, strict=True)
    ]
    return Verdicts(
        alpha=claims.alpha,
        groups={v: tuple(claim for claim in shown if claim.verdict == v) for v in VERDICTS},
        elsewhere=dict(claims.elsewhere),
    )


@cache
def _by_the_paper() -> tuple[Claims, tuple[Judgement, ...]]:
    """The claims, and what the paper's own numbers say of them; neither changes."""
    claims, paper = load_claims(), PrintedEvidence()
    return claims, tuple(judge(claim, paper, claims) for claim in claims.claims.values())


def _shown(judgement: Judgement, row: dict[str, str]) -> ShownClaim:
    facts = {
        "by the paper's own numbers": row["printed"],
        "effect [95 % CI]": row["effect [95 % CI]"],
        "Hedges' g": row["g"],
        "p": row["p"],
        "seeds": row["n"],
        "rests on": row["rests on"],
        "place": row["place"],
        "no data": ", ".join(judgement.absent) or "-",
    }
    return ShownClaim(
        name=judgement.claim.name,
        quote=judgement.claim.quote,
        verdict=judgement.verdict,
        reading=judgement.claim.reading,
        facts={key: text for key, text in facts.items() if text != "-"},
        findings=tuple(
            (finding.label, finding.state, describe_effect(finding.estimate, judgement.unit))
            for finding in judgement.findings
            if len(judgement.findings) > 1 and finding.state != "no data"
        ),
    )
