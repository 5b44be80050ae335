"""Verdicts: what the comparisons of a claim say, by records and by the printed means."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from robust_diffusion.paper.claims.claim import Claim, Claims, Comparison, merged
from robust_diffusion.paper.claims.evidence import (
    Evidence,
    estimate,
    published_evidence,
    recorded_evidence,
)
from robust_diffusion.records.records import Record
from robust_diffusion.results.significance import Estimate, holm

STATES = ("holds", "contradicted", "undecided", "too few seeds", "no data")
VERDICTS = ("supported", "contradicted", "undecided")

PUBLISHED, OF_WORST = "published", "worst case"
"""Columns beside the variants: by the printed means; of the first variant, under worst cases."""


@dataclass(frozen=True)
class Finding:
    """One comparison of a claim, or the mean of all: one of `STATES`, and its test."""

    label: str
    state: str
    estimate: Estimate | None = None
    p: float | None = None  # two-sided, against the margin, of this comparison alone


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim, one of `VERDICTS`, and the findings behind it."""

    verdict: str
    datasets: tuple[str, ...]  # that it rests on
    findings: tuple[Finding, ...]  # of its comparisons
    shown: Finding | None  # the weakest comparison; the mean of an average; the largest difference
    mlp: "Judgement | None" = None  # of the same claim against an MLP
    worst_case: "Judgement | None" = None  # of the same claim under the worst case of each model

    def count(self, state: str) -> int:
        """Number of comparisons in a state."""
        return sum(finding.state == state for finding in self.findings)


@dataclass(frozen=True)
class Row:
    """One claim in every column."""

    name: str
    claim: Claim
    datasets: tuple[str, ...]  # those of which every column that has records has some
    columns: Mapping[str, Judgement | None]  # `None` where a claim has no such column

    @property
    def recorded(self) -> bool:
        """True if the records of some variant test it."""
        return any(j and j.shown for name, j in self.columns.items() if name != PUBLISHED)


def variants_of(records: Sequence[Record]) -> list[str]:
    """Every variant that was run; the default one if none was."""
    return sorted({r["fidelity"] for r in records if r.get("fidelity")}) or ["paper"]


def side_by_side(
    claims: Claims, records: Sequence[Record], variants: Sequence[str], names: Collection[str] = ()
) -> list[Row]:
    """Judge claims by the records of each variant, by the printed means and under worst cases."""
    columns = {name: recorded_evidence(records, fidelity=name) for name in variants}
    columns[PUBLISHED] = published_evidence
    rows = []
    for name in names or claims.claims:
        claim = claims.claims[name]
        known = [found for e in columns.values() if (found := _datasets(claim.comparisons(), e))]
        shared = set.intersection(*map(set, known)) if known else set()
        judged = {column: judge(claim, e, claims, shared) for column, e in columns.items()}
        datasets = max((judgement.datasets for judgement in judged.values()), key=len)
        worst = judged[variants[0]].worst_case
        rows.append(Row(name, claim, datasets, {**judged, OF_WORST: worst}))
    return rows


def judge(
    claim: Claim, evidence: Evidence, claims: Claims, datasets: Collection[str] | None = None
) -> Judgement:
    """Judge one claim by samples, with the level and the fewest seeds of the claims' file.

    Each comparison is tested two-sided against the margin, and those of one claim are corrected by
    Holm's method. A significant one holds or is contradicted, by the side on which its effect
    lies. A claim over all is supported if every comparison holds and contradicted if one is; of an
    average the mean decides, of `differ` any two levels. All else is undecided.

    Args:
        claim: The claim; comparisons on a dataset of which nothing is known are left out.
        evidence: Source of samples.
        claims: The claims' file.
        datasets: Only those count; all by default.
    """
    comparisons = claim.comparisons()
    known = _datasets(comparisons, evidence)
    on = tuple(name for name in known if datasets is None or name in datasets)
    compared = [c for c in comparisons if all(g.dataset in (*on, None) for g in c.groups)]
    samples = {group: evidence(group) for one in compared for group in one.groups}
    if claim.of == "spread":
        samples = {group: sample.spread() for group, sample in samples.items()}

    def tested(comparisons: Sequence[Comparison]) -> list[Finding]:
        findings = []
        for one in comparisons:
            some = any(samples[group].count for group in one.groups)
            if found := estimate(one.terms, samples, claims.min_seeds):
                p, right = _test(claim, found)
                findings.append(Finding(one.label, "holds" if right else "contradicted", found, p))
            else:
                findings.append(Finding(one.label, "too few seeds" if some else "no data"))
        corrected = iter(holm([finding.p for finding in findings if finding.p is not None]))
        return [
            finding
            if finding.p is None or next(corrected) <= claims.alpha
            else replace(finding, state="undecided")
            for finding in findings
        ]

    def strength(finding: Finding) -> float:
        effect = finding.estimate.effect if finding.estimate else 0.0
        return -abs(effect) if claim.test in ("equivalent", "differ") else effect

    findings = tested(compared)
    known_terms = [c.terms for c, f in zip(compared, findings, strict=True) if f.estimate]
    shown = min((f for f in findings if f.estimate), key=strength, default=None)
    deciding = findings
    if claim.over == "average" and shown:
        mean = merged((w / len(known_terms), g) for terms in known_terms for w, g in terms)
        deciding = tested([Comparison("mean", mean)])
        if len(known_terms) < len(compared):
            deciding = [replace(deciding[0], state="too few seeds")]
        shown = deciding[0]
    states = {finding.state for finding in deciding}
    verdict = "contradicted" if "contradicted" in states else "undecided"
    if states == {"holds"} or (claim.test == "differ" and "holds" in states):
        verdict = "supported"
    beside = {"mlp": claim.against_mlp(), "worst_case": claim.under_worst_case()}
    judged = {key: judge(own, evidence, claims, on) for key, own in beside.items() if own}
    return Judgement(verdict, on, tuple(findings), shown, **judged)


def _datasets(comparisons: Sequence[Comparison], evidence: Evidence) -> tuple[str, ...]:
    """The datasets of comparisons on which there is any value."""
    groups = dict.fromkeys(group for one in comparisons for group in one.groups)
    return tuple(dict.fromkeys(g.dataset for g in groups if g.dataset and evidence(g).count))


def _test(claim: Claim, found: Estimate) -> tuple[float, bool]:
    """P-value of an effect against the margin, and whether it lies on the claimed side of it."""
    margin = claim.margin
    if claim.unit == "factor":
        margin = math.log(margin) if margin > 0 else 0.0

    def p(bound: float) -> float:
        # Where nothing varies the effect is certain, and a tie proves nothing.
        found_p = found.p(bound)
        return float(found.effect == bound) if found_p is None else found_p

    if claim.test == "equivalent":
        # Within both margins, or beyond the nearer; two tests, as of Schuirmann 1987.
        return max(p(margin), p(-margin)), abs(found.effect) < margin
    return p(margin), found.effect > margin or claim.test == "differ"
