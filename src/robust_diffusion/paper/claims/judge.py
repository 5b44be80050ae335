"""Verdicts: does what was measured say what a claim says?"""

import math
from collections.abc import Sequence
from itertools import combinations

from robust_diffusion.paper.claims.claim import Claim, Claims, Member, Terms
from robust_diffusion.paper.claims.contrast import CONFIDENCE, Estimate, paired, welch
from robust_diffusion.paper.claims.evidence import Evidence, Sample
from robust_diffusion.paper.claims.group import ACCURACY, Group
from robust_diffusion.paper.claims.judgement import Finding, Judgement, State, Unit, Verdict
from robust_diffusion.paper.claims.trend import jonckheere
from robust_diffusion.results.significance import holm


def judge(claim: Claim, evidence: Evidence, claims: Claims) -> Judgement:
    """Judge one claim.

    Args:
        claim: Which.
        evidence: Where its samples come from.
        claims: The file it is from: level and fewest seeds.
    """
    return _Judge(claim, evidence, claims).judgement()


class _Judge:
    def __init__(self, claim: Claim, evidence: Evidence, claims: Claims) -> None:
        self.claim = claim
        self.alpha, self.min_seeds = claims.alpha, claims.min_seeds
        self.members = claim.members()
        if claim.test == "differ":
            self.members = [pair for member in self.members for pair in _pairs(member)]
        groups = dict.fromkeys(group for member in self.members for group in member.groups)
        samples = {group: evidence.sample(group) for group in groups}
        if claim.of == "spread":
            samples = {group: sample.spread() for group, sample in samples.items()}
        self.samples = samples
        self.unit: Unit = "points" if all(g.measure == ACCURACY for g in groups) else "factor"
        self.margin = claim.margin if self.unit == "points" else _log_margin(claim.margin)

    def judgement(self) -> Judgement:
        known = [member for member in self.members if not self._missing(member)]
        confidence = CONFIDENCE
        if self.claim.test == "differ" and known:
            # The largest of many differences is shown, so its interval has to hold for all.
            confidence = 1 - (1 - CONFIDENCE) / len(known)
        estimates = [self._estimate(_terms(member), confidence) for member in known]
        p_values = [self._p([m], e) for m, e in zip(known, estimates, strict=True)]
        average = self.claim.over == "average" or self.claim.test == "differ"
        # A claim that every statement has to bear out is right by chance no more often than each.
        corrected = holm(p_values) if average else p_values
        found = iter(zip(known, estimates, p_values, corrected, strict=True))
        findings = [
            self._absent(member) if self._missing(member) else self._finding(*next(found))
            for member in self.members
        ]
        absent = _absent_datasets(findings)
        counts = [s.count for s in self.samples.values() if s.count >= self.min_seeds]
        whole, p_whole = self._whole(known, estimates)
        return Judgement(
            claim=self.claim,
            verdict=self._verdict([f for f in findings if f.dataset not in absent], p_whole),
            estimate=whole,
            p=p_whole if average else max(corrected, default=None),
            unit=self.unit,
            findings=tuple(findings),
            absent=absent,
            seeds=(min(counts), max(counts)) if counts else None,
        )

    def _verdict(self, findings: Sequence[Finding], p_whole: float | None) -> Verdict:
        lacking = any(finding.state == "no data" for finding in findings)
        tested = [finding for finding in findings if finding.state != "no data"]
        holding = [finding for finding in tested if finding.state == "holds"]
        if not tested:
            return "not enough data"
        if self.claim.test == "differ":
            return "supported" if holding else "not enough data" if lacking else "not supported"
        if self.claim.over == "average":
            if lacking or p_whole is None:
                return "not enough data"
            return "supported" if p_whole <= self.alpha else "not supported"
        # One statement that fails is enough against a claim about all of them.
        if len(holding) < len(tested):
            return "not supported"
        return "not enough data" if lacking else "supported"

    def _missing(self, member: Member) -> list[Group]:
        return [g for g in member.groups if self.samples[g].count < self.min_seeds]

    def _absent(self, member: Member) -> Finding:
        empty = all(self.samples[group].count == 0 for group in member.groups)
        missing = tuple(self._missing(member))
        return Finding(member.label, member.dataset, missing=missing, empty=empty)

    def _finding(self, member: Member, estimate: Estimate, p: float, corrected: float) -> Finding:
        state: State = "holds" if corrected <= self.alpha else "undecided"
        if self._contradicted(member, estimate):
            state = "contradicted"
        return Finding(member.label, member.dataset, state, estimate, p, corrected)

    def _contradicted(self, member: Member, estimate: Estimate) -> bool:
        match self.claim.test:
            case "greater" | "contrast":
                return estimate.high < self.margin
            case "equivalent":
                return estimate.low > self.margin or estimate.high < -self.margin
            case "trend":
                return self._trend([member], up=self.claim.direction != "up") <= self.alpha
        return False

    def _p(self, members: Sequence[Member], estimate: Estimate) -> float:
        """P-value of some statements together, whose mean effect is given."""
        match self.claim.test:
            case "equivalent":
                return estimate.p_within(self.margin)
            case "trend":
                return self._trend(members, up=self.claim.direction == "up")
            case "differ":
                return estimate.p_nonzero()
        return estimate.p_above(self.margin)

    def _whole(
        self, known: Sequence[Member], estimates: Sequence[Estimate]
    ) -> tuple[Estimate | None, float | None]:
        """The mean effect of all statements with data, or the largest difference."""
        if not known:
            return None, None
        if self.claim.test == "differ":
            largest = max(estimates, key=lambda e: abs(e.effect))
            return largest, min(holm([e.p_nonzero() for e in estimates]))
        weights: dict[Group, float] = {}
        for member in known:
            for weight, group in _terms(member):
                weights[group] = weights.get(group, 0.0) + weight / len(known)
        whole = self._estimate(tuple((w, g) for g, w in weights.items()), CONFIDENCE)
        return whole, self._p(known, whole)

    def _estimate(self, terms: Terms, confidence: float) -> Estimate:
        samples: list[tuple[float, Sample]] = [(w, self.samples[g]) for w, g in terms]
        if self._share_models([group for _, group in terms]):
            # Accuracies of the same models on several graphs go up and down together.
            shared = set.intersection(*(set(sample.values) for _, sample in samples))
            if len(shared) >= self.min_seeds:
                seeds = sorted(shared)
                return paired(
                    [(w, [s.values[seed] for seed in seeds]) for w, s in samples],
                    confidence=confidence,
                )
        moments = [(w, s.moments) for w, s in samples if s.moments is not None]
        return welch(moments, confidence=confidence)

    def _share_models(self, groups: Sequence[Group]) -> bool:
        """Whether two groups are measured on the same trained models, by settings or by record."""
        trained = [set(self.samples[group].models.items()) for group in groups]
        return len({group.cells for group in groups}) < len(groups) or any(
            one & other for one, other in combinations(trained, 2)
        )

    def _trend(self, members: Sequence[Member], *, up: bool) -> float:
        """P-value of rising, or falling, from level to level."""
        strata = [
            {at: self.samples[group].by_seed for at, group in member.levels} for member in members
        ]
        if all(values for stratum in strata for values in stratum.values()):
            # Solvers and test graphs share models, or the numbers of their steps; datasets do not.
            trend = jonckheere(strata, blocks=[member.dataset for member in members])
            return trend.p_up if up else trend.p_down
        # Of means and deviations alone: a contrast that is linear in the rank of the level.
        slope = [
            (rank - (len(member.levels) - 1) / 2, self.samples[group].moments)
            for member in members
            for rank, (_, group) in enumerate(member.levels)
        ]
        estimate = welch([(weight, moments) for weight, moments in slope if moments is not None])
        return estimate.p_above(0) if up else estimate.p_below(0)


def _terms(member: Member) -> Terms:
    """The contrast that shows the effect: of levels, the last less the first."""
    if not member.levels:
        return member.terms
    (_, first), *_, (_, last) = member.levels
    return ((1.0, last), (-1.0, first))


def _pairs(member: Member) -> list[Member]:
    """A member for each two levels."""
    return [
        Member(f"{member.label} {_name(a)} vs {_name(b)}".strip(), None, ((1.0, a), (-1.0, b)))
        for (_, a), (_, b) in combinations(member.levels, 2)
    ]


def _name(group: Group) -> str:
    return "/".join(value for axis, value in group.axes if axis != "attack")


def _absent_datasets(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Datasets of which nothing at all was recorded."""
    datasets = dict.fromkeys(f.dataset for f in findings if f.dataset is not None)
    return tuple(d for d in datasets if all(f.empty for f in findings if f.dataset == d))


def _log_margin(factor: float) -> float:
    return math.log(factor) if factor > 0 else 0.0
