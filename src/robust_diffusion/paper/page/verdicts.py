"""Verdicts on the paper's claims, as the page shows them."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.axes import label_of
from robust_diffusion.paper.claims import (
    Claims,
    Judgement,
    Row,
    judge,
    load_claims,
    published_evidence,
    recorded_evidence,
    side_by_side,
    variants_of,
)
from robust_diffusion.paper.claims.show import (
    describe_basis,
    describe_counts,
    describe_effect,
    describe_interval,
    in_short,
    legend,
)
from robust_diffusion.results.numbers import p_value

UNTESTED = "undecided, too few records"
TESTED = ("supported", "contradicted", "undecided")
GROUPS = (*TESTED, UNTESTED)


def judge_all(records: Sequence[Record], *, fidelity: str) -> dict[str, Any]:
    """The claims of the front pages in every column, and every claim by one variant's records."""
    claims, published = _by_the_paper()
    front = [claims.claims[name] for name in claims.front]
    variants = sorted({fidelity, *variants_of(records)})
    evidence = recorded_evidence(records, fidelity=fidelity)
    judged = [judge(claim, evidence, claims) for claim in claims.claims.values()]
    shown = [_shown(*found) for found in zip(judged, published, strict=True)]
    return {
        "legend": legend(claims.alpha, variants[0]),
        "front": [_front(row, claims) for row in side_by_side(front, claims, records, variants)],
        "groups": {name: [claim for claim in shown if claim["group"] == name] for name in GROUPS},
        "elsewhere": claims.elsewhere,
    }


@cache
def _by_the_paper() -> tuple[Claims, tuple[Judgement, ...]]:
    """The claims, judged by all that the paper prints of each; neither changes."""
    claims, evidence = load_claims(), published_evidence
    return claims, tuple(judge(claim, evidence, claims) for claim in claims.claims.values())


def _front(row: Row, claims: Claims) -> dict[str, Any]:
    return {
        "name": row.claim.name,
        "title": claims.front[row.claim.name],
        "basis": describe_basis(row.claim, row.datasets),
        "cells": {
            name: {"verdict": judgement.verdict if judgement else "", "lines": in_short(judgement)}
            for name, judgement in row.columns.items()
        },
    }


def _in_line(judgement: Judgement | None) -> str:
    return ", ".join(in_short(judgement))


def _shown(judgement: Judgement, published: Judgement) -> dict[str, Any]:
    claim, seeds = judgement.claim, dict.fromkeys(judgement.seeds or ())
    g = judgement.estimate and judgement.estimate.hedges_g
    facts = {
        "comparisons": describe_counts(judgement),
        "with an MLP in place of the others": _in_line(judgement.mlp),
        "under the worst case": _in_line(judgement.worst_case),
        "by all printed means": _in_line(published),
        "rests on": describe_basis(claim, judgement.datasets),
        "no data": ", ".join(label_of("dataset", name) for name in judgement.absent) or "-",
        "Hedges' g": "-" if g is None else f"{g:.2f}",
        "p": "-" if judgement.p is None else p_value(judgement.p),
        "seeds": "..".join(map(str, seeds)) or "-",
        "place": claim.place,
    }
    return {
        "claim": claim,
        "group": judgement.verdict if judgement.shown else UNTESTED,
        "effect": describe_effect(judgement) if judgement.shown else "",
        "facts": {name: text for name, text in facts.items() if text != "-"},
        "findings": [
            (finding.label, finding.state, describe_interval(finding.estimate, claim.unit))
            for finding in judgement.findings
            if len(judgement.findings) > 1 and finding.estimate is not None
        ],
    }
