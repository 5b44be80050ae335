"""Verdicts: tests of a claim's comparisons by the samples of its groups."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations

from robust_diffusion.paper.claims.claim import Claim, Claims, Member, Terms, merged
from robust_diffusion.paper.claims.contrast import Estimate, paired, welch
from robust_diffusion.paper.claims.evidence import Evidence
from robust_diffusion.paper.claims.group import Group
from robust_diffusion.paper.claims.judgement import Finding, Judgement, State, Verdict
from robust_diffusion.paper.claims.recast import against_mlp, under_worst_case
from robust_diffusion.paper.claims.trend import jonckheere
from robust_diffusion.results.significance import holm


def judge(
    claim: Claim, evidence: Evidence, claims: Claims, *, datasets: Collection[str] | None = None
) -> Judgement:
    """Judge one claim by samples, at the level alpha and with the fewest seeds of the claims' file.

    Each of a claim's K comparisons has a two-sided confidence interval that is simultaneous over
    the K: Bonferroni's, of level 1 - alpha / K, valid whatever the comparisons share. A comparison

    - holds if its own test at alpha says so: one-sided beyond the margin (greater, contrast);
      within it by two one-sided tests (equivalent); a trend in its direction; a difference;
    - is contradicted if its interval lies wholly on the wrong side of the margin: below it; outside
      of both (equivalent); of a trend, if the opposite one is significant at alpha / 2K. No
      interval shows that nothing differs, so a difference is never contradicted;
    - is undecided otherwise.

    A claim over all is supported if every comparison holds, which by chance happens no more often
    than that one does and needs no correction (Berger 1982), and contradicted if any is. Of an
    average the test and interval of the mean decide; its parts hold by Holm's method. `differ` is
    supported if any two levels differ by Holm's method. Spreads are tested like levels, as
    distances from the median. All else is undecided, as is what has too few seeds.

    Args:
        claim: The claim; comparisons on a dataset of which nothing is known are left out.
        evidence: Source of samples.
        claims: The claims' file.
        datasets: Only those count; all by default.
    """

    def judged(members: list[Member], datasets: Collection[str] | None) -> Judgement | None:
        return _Judge(claim, members, evidence, claims, datasets).judgement() if members else None

    members = claim.members()
    found = _Judge(claim, members, evidence, claims, datasets).judgement()
    worst = under_worst_case(claim, members)
    worst_case = judged(worst, found.datasets)
    if worst_case is not None:
        mlp = judged(against_mlp(claim, worst), worst_case.datasets)
        worst_case = replace(worst_case, mlp=mlp)
    mlp = judged(against_mlp(claim, members), found.datasets)
    return replace(found, mlp=mlp, worst_case=worst_case)


def known_datasets(members: Sequence[Member], evidence: Evidence) -> set[str]:
    """The datasets of comparisons on which there is any value."""
    groups = {group for member in members for group in member.groups}
    return {group.dataset for group in groups if group.dataset and evidence(group).count}


class _Judge:
    def __init__(
        self,
        claim: Claim,
        members: list[Member],
        evidence: Evidence,
        claims: Claims,
        datasets: Collection[str] | None,
    ) -> None:
        self.claim = claim
        self.alpha, self.min_seeds = claims.alpha, claims.min_seeds
        self.differ, self.average = claim.test == "differ", claim.over == "average"
        if self.differ:
            members = [pair for member in members for pair in _pairs(member)]
        groups = dict.fromkeys(group for member in members for group in member.groups)
        known = known_datasets(members, evidence)
        wanted = known if datasets is None else known & set(datasets)
        named = dict.fromkeys(group.dataset for group in groups if group.dataset)
        self.datasets = tuple(name for name in named if name in wanted)
        self.absent = tuple(name for name in named if name not in wanted)
        self.members = [m for m in members if not {g.dataset for g in m.groups} & {*self.absent}]
        self.samples = {group: evidence(group) for group in groups}
        if claim.of == "spread":
            self.samples = {group: sample.spread() for group, sample in self.samples.items()}
        self.margin = claim.margin
        if claim.unit == "factor":
            self.margin = math.log(claim.margin) if claim.margin > 0 else 0.0

    def judgement(self) -> Judgement:
        number = len(self.members)
        known = [member for member in self.members if not self._missing(member)]
        estimates = [self._estimate(member.contrast, number) for member in known]
        p_values = [self._p_value([m], e) for m, e in zip(known, estimates, strict=True)]
        if self.average or self.differ:
            p_values = holm(p_values)
        tested = {
            m: Finding(m.label, self._state([m], e, p, number), e, p)
            for m, e, p in zip(known, estimates, p_values, strict=True)
        }
        findings = [tested.get(member) or self._untested(member) for member in self.members]
        shown = None
        if known:
            ranked = sorted(zip(estimates, tested.values(), strict=True), key=self._strength)
            shown = self._mean(known) if self.average else ranked[0][1]
        p = (min if self.differ else max)(p_values, default=None)
        used = {group for member in self.members for group in member.groups}
        counts = [n for g in used if (n := self.samples[g].count) >= self.min_seeds]
        return Judgement(
            claim=self.claim,
            verdict=self._verdict([shown] if self.average and shown else findings),
            datasets=self.datasets,
            absent=self.absent,
            findings=tuple(findings),
            shown=shown,
            p=shown.p if self.average and shown else p,
            seeds=(min(counts), max(counts)) if counts else None,
        )

    def _verdict(self, findings: Sequence[Finding]) -> Verdict:
        states = {finding.state for finding in findings}
        if states == {"holds"} or (self.differ and "holds" in states):
            return "supported"
        return "contradicted" if "contradicted" in states else "undecided"

    def _missing(self, member: Member) -> tuple[Group, ...]:
        return tuple(g for g in member.groups if self.samples[g].count < self.min_seeds)

    def _untested(self, member: Member) -> Finding:
        some = any(self.samples[group].count for group in member.groups)
        state: State = "too few seeds" if some else "no data"
        return Finding(member.label, state, missing=self._missing(member))

    def _mean(self, known: Sequence[Member]) -> Finding:
        """The mean of the comparisons with data, which decides if that is all."""
        terms = [(w / len(known), group) for member in known for w, group in member.contrast]
        estimate = self._estimate(merged(terms), 1)
        p = self._p_value(known, estimate)
        whole = len(known) == len(self.members)
        state = self._state(known, estimate, p, 1) if whole else "too few seeds"
        return Finding("mean", state, estimate, p)

    def _strength(self, tested: tuple[Estimate, Finding]) -> float:
        """Effect in the direction of the claim; the largest difference comes first."""
        effect = tested[0].effect
        if self.claim.test in ("equivalent", "differ"):
            return -abs(effect)
        falls = self.claim.test == "trend" and self.claim.direction == "down"
        return -effect if falls else effect

    def _state(
        self, members: Sequence[Member], estimate: Estimate, p: float, comparisons: int
    ) -> State:
        if p <= self.alpha:
            return "holds"
        match self.claim.test:
            case "greater" | "contrast":
                wrong = estimate.high < self.margin
            case "equivalent":
                wrong = estimate.low > self.margin or estimate.high < -self.margin
            case "trend":
                opposite = self._trend(members, up=self.claim.direction != "up")
                wrong = opposite <= self.alpha / (2 * comparisons)
            case "differ":
                wrong = False
        return "contradicted" if wrong else "undecided"

    def _p_value(self, members: Sequence[Member], estimate: Estimate) -> float:
        """P-value of some comparisons together, given their mean effect."""
        match self.claim.test:
            case "equivalent":
                return estimate.p_within(self.margin)
            case "trend":
                return self._trend(members, up=self.claim.direction == "up")
            case "differ":
                return estimate.p_nonzero()
        return estimate.p_above(self.margin)

    def _estimate(self, terms: Terms, comparisons: int) -> Estimate:
        """Effect with an interval that is simultaneous over so many comparisons (Bonferroni)."""
        confidence = 1 - self.alpha / comparisons
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
            {at: [x for _, x in sorted(self.samples[g].values.items())] for at, g in member.levels}
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


def _pairs(member: Member) -> list[Member]:
    """A comparison for each two levels."""
    return [
        Member(f"{member.label} {_name(a)} vs {_name(b)}".strip(), None, ((1.0, a), (-1.0, b)))
        for (_, a), (_, b) in combinations(member.levels, 2)
    ]


def _name(group: Group) -> str:
    return "/".join(value for axis, value in group.axes if axis != "attack")
