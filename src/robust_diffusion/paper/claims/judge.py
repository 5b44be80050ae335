"""Verdicts: what the comparisons of a claim say, by records and by the printed means."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

import pandas as pd

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.axes import WORST
from robust_diffusion.paper.claims.claim import (
    ACCURACY,
    MLP,
    WORST_CASE,
    Claim,
    Claims,
    Comparison,
    Group,
    merged,
)
from robust_diffusion.paper.layout import ASSUMED_RUNS, load_layout, printed_number
from robust_diffusion.records.records import Record
from robust_diffusion.results.cells import CLEAN, RecordSet, select, value_at
from robust_diffusion.results.entry import Reported
from robust_diffusion.results.frame import frame
from robust_diffusion.results.significance import Estimate, holm
from robust_diffusion.results.worst_case import MODEL, worst_cases

STATES = ("holds", "contradicted", "undecided", "too few seeds", "no data")
MEDIAN_SECONDS = "seconds.diffusion"
"""Path of the median time in a record of a timed step."""

VERDICTS = ("supported", "contradicted", "undecided")

PUBLISHED, OF_WORST = "published", "worst case"
"""Columns beside the variants: by the printed means; of the first variant, under worst cases."""

WORST_CASES = (WORST_CASE, "worst-case-models", "worst-case-graphs")
"""Experiments in which all seeds of all models meet the same attacks, on one split per dataset."""

Sample = Mapping[int, float] | Reported
"""Values of a group by seed, of times their logarithms, or what is printed; empty if unknown."""

Evidence = Callable[[Group], Sample]


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


def recorded_evidence(records: Sequence[Record], *, fidelity: str) -> Evidence:
    """Samples from the finished cells of one variant; each seed counts once.

    An MLP has no variants, so that of `experiment=mlp` counts whatever variant it was run as.
    """
    cells = cache(RecordSet.of(records, fidelity=fidelity).cells)
    of_any = cache(RecordSet.of(records).cells)

    @cache
    def of_worst() -> pd.DataFrame:
        return frame(cell for own in WORST_CASES for cell in cells(own) if "error" not in cell)

    @cache
    def all_worst() -> pd.DataFrame:
        return worst_cases(of_worst(), all_versions=True)

    @cache
    def sample(group: Group) -> Sample:
        name, graph, wanted = group.experiment, group.graph, group.line.record
        if name == WORST_CASE:
            own = [
                all(value_at(of, k) == v for k, v in wanted.items()) for of in of_worst()["record"]
            ]
            models = all_worst().merge(of_worst().loc[own, MODEL].drop_duplicates())
            # Of a model that was itself attacked, by the version of `auto` with the most seeds.
            models = models[models["seen"]]
            seeds = models["version"].value_counts()
            version = max(seeds.index, key=lambda version: (seeds[version], version), default=0)
            accuracies = models[models["version"] == version].set_index("draw")
            return dict(100.0 * accuracies["worst" if graph == WORST else CLEAN])
        if name == MLP:
            found, graph = of_any(name), CLEAN  # it sees no edge, injected ones included
        else:
            found = cells(name)
        finished = select(found, wanted, graph, timed=group.measure == MEDIAN_SECONDS).finished
        if group.measure == ACCURACY:
            return {s: 100.0 * cell["accuracy"][graph] for s, cell in finished.items()}
        values = {seed: value_at(cell, group.measure) for seed, cell in finished.items()}
        # A factor is a difference of logarithms, so only positive values have one.
        return {s: math.log(x) for s, x in values.items() if isinstance(x, int | float) and x > 0}

    return sample


@cache
def published_evidence(group: Group) -> Sample:
    """The paper's own mean and deviation, taken as of five runs, to test its text against them."""
    if group.measure != ACCURACY or not group.experiment.startswith("table-"):
        return {}
    try:
        table = load_layout(int(group.experiment.removeprefix("table-"))).label
        found = printed_number({"table": table, **group.line.printed})
    except ConfigError:
        return {}
    return {} if None in (found.mean, found.std) else found


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
        known = [found for e in columns.values() if (found := _datasets(claim.comparisons, e))]
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

    Comparisons on a dataset of which nothing is known, or that is none of `datasets`, are left out.
    """
    comparisons = claim.comparisons
    known = _datasets(comparisons, evidence)
    on = tuple(name for name in known if datasets is None or name in datasets)
    compared = [c for c in comparisons if all(g.dataset in (*on, None) for g in c.groups)]
    samples = {group: evidence(group) for one in compared for group in one.groups}
    if claim.of == "spread":
        samples = {group: _deviations(sample) for group, sample in samples.items()}

    def tested(comparisons: Sequence[Comparison]) -> list[Finding]:
        findings = [_tested(claim, one, samples, claims.min_seeds) for one in comparisons]
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
    estimated = [c.terms for c, f in zip(compared, findings, strict=True) if f.estimate]
    shown = min((f for f in findings if f.estimate), key=strength, default=None)
    deciding = findings
    if claim.over == "average" and shown:
        mean = ((w / len(estimated), group) for terms in estimated for w, group in terms)
        (shown,) = tested([Comparison("mean", merged(mean))])
        if len(estimated) < len(compared):
            shown = replace(shown, state="too few seeds")
        deciding = [shown]
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
    return tuple(dict.fromkeys(g.dataset for g in groups if g.dataset and evidence(g)))


def _deviations(sample: Sample) -> Sample:
    """Distances from the median, whose mean measures the spread: Brown and Forsythe 1974."""
    if isinstance(sample, Reported) or not sample:
        return {}
    middle = median(sample.values())
    return {seed: abs(value - middle) for seed, value in sample.items()}


def _tested(
    claim: Claim, one: Comparison, samples: Mapping[Group, Sample], min_seeds: int
) -> Finding:
    """A comparison with its test against the margin, uncorrected."""
    found = _estimate([(weight, samples[group]) for weight, group in one.terms], min_seeds)
    if found is None:
        some = any(samples[group] for group in one.groups)
        return Finding(one.label, "too few seeds" if some else "no data")
    margin = claim.margin
    if claim.unit == "factor":
        margin = math.log(margin) if margin > 0 else 0.0
    if claim.test == "equivalent":
        # Within both margins, or beyond the nearer; two tests, as of Schuirmann 1987.
        p, right = max(_p(found, margin), _p(found, -margin)), abs(found.effect) < margin
    else:
        p, right = _p(found, margin), found.effect > margin or claim.test == "differ"
    return Finding(one.label, "holds" if right else "contradicted", found, p)


def _p(found: Estimate, bound: float) -> float:
    # Where nothing varies the effect is certain, and a tie proves nothing.
    p = found.p(bound)
    return float(found.effect == bound) if p is None else p


def _estimate(found: Sequence[tuple[float, Sample]], min_seeds: int) -> Estimate | None:
    """The weighted sum of the means of some samples; `None` of fewer seeds than that.

    Values are summed seed by seed, since models of one seed share the split and the attacked
    graph; printed means are of independent runs.
    """
    printed = [
        (weight, of.mean or 0.0, of.std or 0.0, ASSUMED_RUNS)
        for weight, of in found
        if isinstance(of, Reported)
    ]
    if len(printed) == len(found):
        return Estimate.sum(printed)
    by_seed = [(weight, of) for weight, of in found if not isinstance(of, Reported)]
    shared = sorted(set.intersection(*(set(values) for _, values in by_seed)))
    if printed or len(shared) < min_seeds:
        return None
    # Rounded, since equal differences of floats are not quite equal.
    return Estimate.of([round(math.fsum(w * of[s] for w, of in by_seed), 9) for s in shared])
