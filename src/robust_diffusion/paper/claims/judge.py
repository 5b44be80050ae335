"""Verdicts: tests of a claim's statements by the samples of its groups."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

from robust_diffusion.paper.claims.claim import Claim, Claims, Member, Terms, merged
from robust_diffusion.paper.claims.contrast import CONFIDENCE, Estimate, paired, welch
from robust_diffusion.paper.claims.evidence import Evidence
from robust_diffusion.paper.claims.group import ACCURACY, Group
from robust_diffusion.paper.claims.judgement import Finding, Judgement, State, Unit, Verdict
from robust_diffusion.paper.claims.trend import jonckheere
from robust_diffusion.results.significance import holm


def judge(claim: Claim, evidence: Evidence, claims: Claims) -> Judgement:
    """Judge one claim by the samples of some evidence.

    Args:
        claim: The claim.
        evidence: Source of its samples.
        claims: The file it is from: level and fewest seeds.
    """
    return _Judge(claim, evidence, claims).judgement()


class _Judge:
    def __init__(self, claim: Claim, evidence: Evidence, claims: Claims) -> None:
        self.claim = claim
        self.alpha, self.min_seeds = claims.alpha, claims.min_seeds
        self.differ = claim.test == "differ"
        self.members = claim.members()
        if self.differ:
            self.members = [pair for member in self.members for pair in _pairs(member)]
        groups = dict.fromkeys(group for member in self.members for group in member.groups)
        self.samples = {group: evidence.sample(group) for group in groups}
        if claim.of == "spread":
            self.samples = {group: sample.spread() for group, sample in self.samples.items()}
        self.unit: Unit = "points" if all(g.measure == ACCURACY for g in groups) else "factor"
        self.margin = claim.margin
        if self.unit == "factor":
            self.margin = math.log(claim.margin) if claim.margin > 0 else 0.0

    def judgement(self) -> Judgement:
        known = [member for member in self.members if not self._missing(member)]
        # The largest of many differences is shown, so its interval has to hold for all.
        of_all = self.differ and known
        confidence = 1 - (1 - CONFIDENCE) / len(known) if of_all else CONFIDENCE
        estimates = [self._estimate(member.contrast, confidence) for member in known]
        p_values = [self._p_value([m], e) for m, e in zip(known, estimates, strict=True)]
        average = self.claim.over == "average" or self.differ
        # A claim that needs every statement is right by chance no more often than each.
        corrected = holm(p_values) if average else p_values
        tested = iter(zip(known, estimates, p_values, corrected, strict=True))
        findings = [
            self._untested(member) if self._missing(member) else self._finding(*next(tested))
            for member in self.members
        ]
        absent = _absent_datasets(findings)
        counts = [s.count for s in self.samples.values() if s.count >= self.min_seeds]
        estimate, p = self._overall(known, estimates)
        return Judgement(
            claim=self.claim,
            verdict=self._verdict([f.state for f in findings if f.dataset not in absent], p),
            estimate=estimate,
            p=p if average else max(corrected, default=None),
            unit=self.unit,
            findings=tuple(findings),
            absent=absent,
            seeds=(min(counts), max(counts)) if counts else None,
        )

    def _verdict(self, states: Sequence[State], p_overall: float | None) -> Verdict:
        lacking = "no data" in states
        tested = [state for state in states if state != "no data"]
        if not tested:
            return "not enough data"
        if self.differ:
            # Any two levels that differ are enough.
            supported, complete = "holds" in tested, "holds" in tested or not lacking
        elif self.claim.over == "average":
            supported = p_overall is not None and p_overall <= self.alpha
            complete = not lacking and p_overall is not None
        else:
            # One statement that fails is enough against a claim about all of them.
            supported = set(tested) == {"holds"}
            complete = not supported or not lacking
        if not complete:
            return "not enough data"
        return "supported" if supported else "not supported"

    def _missing(self, member: Member) -> tuple[Group, ...]:
        return tuple(g for g in member.groups if self.samples[g].count < self.min_seeds)

    def _untested(self, member: Member) -> Finding:
        empty = all(self.samples[group].count == 0 for group in member.groups)
        return Finding(member.label, member.dataset, missing=self._missing(member), empty=empty)

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

    def _p_value(self, members: Sequence[Member], estimate: Estimate) -> float:
        """P-value of some statements together, given their mean effect."""
        match self.claim.test:
            case "equivalent":
                return estimate.p_within(self.margin)
            case "trend":
                return self._trend(members, up=self.claim.direction == "up")
            case "differ":
                return estimate.p_nonzero()
        return estimate.p_above(self.margin)

    def _overall(
        self, known: Sequence[Member], estimates: Sequence[Estimate]
    ) -> tuple[Estimate | None, float | None]:
        """Mean effect of all statements with data, or the largest difference, and its p-value."""
        if not known:
            return None, None
        if self.differ:
            largest = max(estimates, key=lambda e: abs(e.effect))
            return largest, min(holm([e.p_nonzero() for e in estimates]))
        terms = [(w / len(known), group) for member in known for w, group in member.contrast]
        overall = self._estimate(merged(terms), CONFIDENCE)
        return overall, self._p_value(known, overall)

    def _estimate(self, terms: Terms, confidence: float) -> Estimate:
        samples = [(weight, self.samples[group]) for weight, group in terms]
        if self._share_models([group for _, group in terms]):
            # Accuracies of the same models on several graphs go up and down together.
            seeds = sorted(set.intersection(*(set(sample.values) for _, sample in samples)))
            if len(seeds) >= self.min_seeds:
                values = [(w, [sample.values[seed] for seed in seeds]) for w, sample in samples]
                return paired(values, confidence=confidence)
        moments = [(w, s.moments) for w, s in samples if s.moments is not None]
        return welch(moments, confidence=confidence)

    def _share_models(self, groups: Sequence[Group]) -> bool:
        """True if two groups are measured on the same trained models, by settings or by record."""
        trained = [set(self.samples[group].models.items()) for group in groups]
        return len({group.cells for group in groups}) < len(groups) or any(
            one & other for one, other in combinations(trained, 2)
        )

    def _trend(self, members: Sequence[Member], *, up: bool) -> float:
        """P-value of rising, or falling, from level to level."""
        strata = [
            {at: _by_seed(self.samples[group].values) for at, group in member.levels}
            for member in members
        ]
        if all(values for stratum in strata for values in stratum.values()):
            # Solvers and test graphs share models, or the numbers of their steps; datasets do not.
            trend = jonckheere(strata, blocks=[member.dataset for member in members])
            return trend.p_up if up else trend.p_down
        # Of means and deviations alone: a contrast that is linear in the rank of the level.
        slope = [
            (rank - (len(member.levels) - 1) / 2, moments)
            for member in members
            for rank, (_, group) in enumerate(member.levels)
            if (moments := self.samples[group].moments) is not None
        ]
        estimate = welch(slope)
        return estimate.p_above(0) if up else estimate.p_below(0)


def _by_seed(values: Mapping[int, float]) -> list[float]:
    return [values[seed] for seed in sorted(values)]


def _pairs(member: Member) -> list[Member]:
    """A statement for each two levels."""
    return [
        Member(f"{member.label} {_name(a)} vs {_name(b)}".strip(), None, ((1.0, a), (-1.0, b)))
        for (_, a), (_, b) in combinations(member.levels, 2)
    ]


def _name(group: Group) -> str:
    return "/".join(value for axis, value in group.axes if axis != "attack")


def _absent_datasets(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Datasets without any record."""
    datasets = dict.fromkeys(f.dataset for f in findings if f.dataset is not None)
    return tuple(d for d in datasets if all(f.empty for f in findings if f.dataset == d))
