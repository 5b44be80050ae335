"""Claims of the paper, declared in `conf/claims.yaml`: judging them by records, and tables."""

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import combinations, compress, product
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
import pandas as pd
from pydantic import BaseModel, Field, ValidationError, model_validator
from yaml import YAMLError

from robust_diffusion.checks import check_choice
from robust_diffusion.config import CONFIG_DIR, read_yaml
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.axes import STAND_INS, WORST, check_axes, label_of, with_axes
from robust_diffusion.paper.remarks import published
from robust_diffusion.paper.tables import load_layout
from robust_diffusion.records.record import CLEAN
from robust_diffusion.records.schema import first_problem
from robust_diffusion.results.frame import asked_by, settings_by_path
from robust_diffusion.results.show import Table, show
from robust_diffusion.results.view import ASSUMED_RUNS, View, replicates
from robust_diffusion.results.worst_case import worst_cases
from robust_diffusion.system.numbers import MINUS, RULE, Estimate, holm, p_value

CLAIMS = CONFIG_DIR / "claims.yaml"
PRINTED_COLUMN = "published"  # column of evidence: the printed means
UNDER_WORST = "worst case"  # column of evidence: the first variant under worst cases
VERDICTS = ("supported", "contradicted", "undecided")
_MLP = "mlp"  # the model that sees no edge, and the experiment that trains it on every graph
_WORST_CASES = ("worst-case", "worst-case-models", "worst-case-graphs")
"""Experiments in which all seeds of all models meet the same attacks, on one split per dataset."""

Axes: TypeAlias = dict[str, Any]
Group: TypeAlias = tuple[tuple[str, str], ...]  # sorted axes of runs that differ only in their seed
Terms: TypeAlias = dict[Group, float]  # an effect: the weight of each group's mean
Comparisons: TypeAlias = list[tuple[str, Terms]]  # with labels
Sample: TypeAlias = dict[int, float] | tuple[float, float] | None  # by seed; mean, deviation
Evidence: TypeAlias = Callable[[Group], Sample]


class Claim(BaseModel, extra="forbid", frozen=True, strict=True):
    """A sentence of the paper as comparisons; `conf/claims.yaml` explains the fields."""

    quote: str
    place: str
    reading: str = ""
    over: Literal["all", "average", "any"] = "all"
    of: Literal["level", "spread"] = "level"
    margin: float = 0.0
    within: Annotated[float, Field(ge=0)] = 0.0
    select: Axes = {}
    each: dict[str, list[Any]] = {}
    left: Axes = {}
    right: Axes = {}
    terms: list[Axes] = []

    @property
    def is_factor(self) -> bool:
        """Return whether effects are logarithms of factors instead of points of accuracy."""
        return "measure" in self.select

    @model_validator(mode="after")
    def _compares(self) -> Self:
        effects = [terms for _, terms in self.comparisons]
        if not effects or {} in effects:
            raise ConfigError(f"over={self.over} compares nothing; name two sides")
        if self.is_factor and self.margin < 0:
            raise ConfigError(f"margin={self.margin}: expected a factor above 0")
        return self

    @cached_property
    def comparisons(self) -> Comparisons:
        """Return every comparison; an unknown axis or value is a `ConfigError`."""
        comparisons = []
        for combination in _combinations(self.each):
            sides_of = {"": dict(self.select), "left": dict(self.left), "right": dict(self.right)}
            for axis, value in combination.items():
                side, _, name = axis.rpartition(".")
                sides_of[check_choice("each", side, sides_of)][name] = value
            words = [
                f"vs {v}" if axis == "right.model" else str(v) for axis, v in combination.items()
            ]
            for sides in self._sides(sides_of["left"], sides_of["right"]):
                groups = [(w, [*map(group, _combinations(sides_of[""] | x))]) for w, x in sides]
                terms = _merged((g, w / len(side)) for w, side in groups for g in side)
                levels = ({**axes_of(g), "attack": ""} for g in terms if self.over == "any")
                pair = " vs ".join("/".join(filter(None, x.values())) for x in levels)
                comparisons.append((" ".join([*words, pair]).strip(), terms))
        return comparisons

    def _sides(self, left: Axes, right: Axes) -> list[list[tuple[float, Axes]]]:
        """Return weights and axes of the sides of each comparison."""
        if self.over == "any":
            return [[(1, a), (-1, b)] for a, b in combinations(self.terms, 2)]
        terms = self.terms or [{"weight": 1, **left}, {"weight": -1, **right}]
        return [[(axes.pop("weight", 1), axes) for axes in map(dict, terms)]]

    @cached_property
    def related(self) -> dict[str, "Claim"]:
        """Return the same claim with an MLP on the right, and under the worst case of each model.

        They exist only for accuracies at the default settings and budget.
        """
        items = {item for _, terms in self.comparisons for group in terms for item in group}
        graphs = {graph for axis, graph in items if axis == "attack"}
        default = {axis for axis, _ in items} <= {"experiment", "dataset", "model", "attack"}
        if not default or self.of == "spread" or ("experiment", _MLP) in items:
            return {}
        changes: dict[str, Axes] = {}
        versus = "model" in self.right or "right.model" in self.each
        if versus and not self.within and CLEAN not in graphs:
            other_axes = {
                axis: values for axis, values in self.each.items() if axis != "right.model"
            }
            changes["mlp"] = {"each": other_axes, "right": {"experiment": _MLP, "model": _MLP}}
        if graphs - {CLEAN, WORST}:
            changes["worst_case"] = _at_worst(self.model_dump())
        return {key: self.model_construct(**dict(self) | change) for key, change in changes.items()}


class Claims(BaseModel, extra="forbid", frozen=True, strict=True):
    """Content of a file of claims."""

    alpha: Annotated[float, Field(gt=0, lt=1)]  # level of the tests
    min_seeds: Annotated[int, Field(ge=2)]  # fewest seeds of a comparison that is tested
    claims: dict[str, Claim]
    elsewhere: dict[str, str]  # sentence that no record decides -> where it is discussed
    front: dict[str, str] = {}  # claim of the front pages -> its title


def experiments(claims: Claims) -> set[str]:
    """Return the experiments whose runs the claims are judged by."""
    groups = (g for c in claims.claims.values() for _, terms in c.comparisons for g in terms)
    return {dict(group)["experiment"] for group in groups} | {_MLP, *_WORST_CASES}


def load_claims(path: str | Path = CLAIMS) -> Claims:
    """Read and check a YAML file of claims such as `conf/claims.yaml`, which explains its keys."""
    try:
        claims = Claims.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_problem(error)}") from error
    except (OSError, YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error
    for name in claims.front:
        check_choice("front", name, claims.claims)
    return claims


def group(axes: Axes) -> Group:
    """Return the group of an `experiment`, optionally a `measure`, and axes of the tables."""
    if "experiment" not in axes or not {"attack", "measure"} & axes.keys():
        raise ConfigError(f"expected experiment, and attack or measure; got {', '.join(axes)}")
    check_axes(axes_of(pairs := tuple(sorted((axis, str(v)) for axis, v in axes.items()))))
    return pairs


def axes_of(group: Group) -> dict[str, str]:
    """Return the axes of a group that the paper's tables have."""
    return {axis: value for axis, value in group if axis not in ("experiment", "measure")}


def _combinations(axes: Axes) -> list[Axes]:
    """Return every choice of one value per axis, the first axis slowest."""
    lists = [value if isinstance(value, list) else [value] for value in axes.values()]
    return [dict(zip(axes, values, strict=True)) for values in product(*lists)]


def _merged(terms: Iterable[tuple[Group, float]]) -> Terms:
    """Add up the weights of equal groups, and drop groups that cancel."""
    weights: Terms = {}
    for one, weight in terms:
        weights[one] = weights.get(one, 0.0) + weight
    return {one: weight for one, weight in weights.items() if weight}


def _at_worst(node: Any, key: str = "") -> Any:
    """Replace every attack by the worst case, and every table by the experiments on it."""
    if isinstance(node, dict):
        return {axis: _at_worst(value, axis) for axis, value in node.items()}
    if isinstance(node, list):
        return list({str(value): value for value in (_at_worst(x, key) for x in node)}.values())
    attacked = key.endswith("attack") and node != CLEAN
    return _WORST_CASES[0] if key == "experiment" else WORST if attacked else node


def recorded_evidence(runs: pd.DataFrame, *, fidelity: str) -> Evidence:
    """Return samples from the finished runs of one variant; each seed counts once.

    An MLP has no variants, so the runs of `experiment=mlp` count for every variant.

    Args:
        runs: Result of `with_axes`.
        fidelity: The variant.
    """
    full = runs[runs["scale"] == "full"]
    of_variant = full[full["variant"] == fidelity]

    @cache
    def asked(experiment: str) -> pd.DataFrame:
        return asked_by(full if experiment == _MLP else of_variant, experiment)

    @cache
    def samples(experiment: str, value: Any, axes: tuple[str, ...]) -> dict[Any, Any]:
        return replicates(asked(experiment), View(axes, [], value=value))

    @cache
    def lowest() -> Mapping[Any, pd.DataFrame]:
        return _lowest(pd.concat([asked(name) for name in _WORST_CASES]))

    @cache
    def sample(group: Group) -> Sample:
        axes, (experiment, measure) = axes_of(group), _where(group)
        if experiment == _WORST_CASES[0]:
            models = lowest().get((axes["dataset"], axes["model"]))
            graph = WORST if axes["attack"] == WORST else CLEAN
            numbers = {} if models is None else dict(100 * models[graph].dropna())
        else:
            # An MLP sees no edge, injected ones included.
            own = axes | {"attack": CLEAN if experiment == _MLP else axes.get("attack", CLEAN)}
            of_axes = samples(experiment, measure, tuple(own))
            numbers = of_axes.get(tuple(own.values()), {})
        # A factor is a difference of logarithms, so only positive values have one.
        logs = {seed: math.log(x) for seed, x in numbers.items() if x > 0}
        return (numbers if measure == "accuracy" else logs) or None

    return sample


def _where(group: Group) -> tuple[str, Any]:
    pairs = dict(group)
    return pairs["experiment"], pairs.get("measure", "accuracy")


def _lowest(runs: pd.DataFrame) -> Mapping[Any, pd.DataFrame]:
    """Return worst cases and clean accuracies by seed, for each dataset and model."""
    runs = runs[runs["error"].isna()]
    # No mean over several budgets or settings: the latest count.
    settings = map(settings_by_path, runs["record"])
    pairs = list(zip(runs["budget"], settings, strict=True))
    keys = list(zip(runs["dataset"], runs["model"], strict=True))
    latest = dict(zip(keys, pairs, strict=True))
    places = [i for i, (k, p) in enumerate(zip(keys, pairs, strict=True)) if latest[k] == p]
    models = worst_cases(runs.iloc[places])
    seen = models[models["seen"].astype(bool)].set_index("seed").sort_index()
    return dict(list(seen.groupby(["dataset", "model"])))


@cache
def _printed(experiment: str, axes: tuple[str, ...]) -> Mapping[Any, tuple[float, float]]:
    """Return printed means and deviations by axes; the stand-ins have those of their datasets."""
    try:
        printed = load_layout(int(experiment.removeprefix("table-"))).printed
    except ValueError:  # no table
        return {}
    stand_ins = printed.assign(dataset=printed["dataset"].map(STAND_INS))
    every = pd.concat([printed, stand_ins]).dropna(subset=["mean", "std", *axes])
    every = every.drop_duplicates([*axes], keep=False)
    numbers = zip(every["mean"], every["std"], strict=True)
    return dict(zip(every[[*axes]].itertuples(index=False, name=None), numbers, strict=True))


def published_evidence(group: Group) -> Sample:
    """Return the mean and the deviation that the paper prints."""
    axes, (experiment, measure) = axes_of(group), _where(group)
    printed = _printed(experiment, tuple(axes)) if measure == "accuracy" else {}
    return printed.get(tuple(axes.values()))


def variants_of(frame: pd.DataFrame) -> list[str]:
    """Return every variant in the records; the default one if there is none."""
    return sorted({*frame["variant"].dropna()}) or ["paper"]


@dataclass
class Finding:
    """One comparison of a claim, or the mean of all, and its test."""

    label: str
    state: str  # holds, contradicted, undecided, too few seeds, no data
    estimate: Estimate | None = None
    p: float | None = None  # two-sided, against the margin, of this comparison alone


@dataclass
class Judgement:
    """The verdict on a claim, and the findings behind it."""

    verdict: str  # of `VERDICTS`
    datasets: list[str]  # that it rests on
    findings: list[Finding]  # of its comparisons
    shown: Finding | None  # the weakest comparison; the mean of an average; the largest difference
    mlp: "Judgement | None" = None  # of the same claim against an MLP
    worst_case: "Judgement | None" = None  # of the same claim under the worst case of each model


def judge_all(
    claims: Claims, frame: pd.DataFrame, variants: Sequence[str], names: Collection[str] = ()
) -> pd.DataFrame:
    """Judge claims by the runs of each variant, by the printed means and under worst cases.

    Returns:
        One row per claim, by its name: `claim`; `datasets`, those on which every column with any
        evidence has some; and a `Judgement` or `None` per column of evidence.
    """
    runs = with_axes(frame)
    columns = {name: recorded_evidence(runs, fidelity=name) for name in variants}
    columns[PRINTED_COLUMN] = published_evidence
    rows = {}
    for name in names or claims.claims:
        claim = claims.claims[name]
        known = [set(_datasets(claim.comparisons, evidence)) for evidence in columns.values()]
        shared = set.intersection(*filter(None, known)) if any(known) else set()
        judged = {column: judge(claim, e, claims, shared) for column, e in columns.items()}
        datasets = max((judgement.datasets for judgement in judged.values()), key=len)
        worst = judged[variants[0]].worst_case
        rows[name] = {"claim": claim, "datasets": datasets, **judged, UNDER_WORST: worst}
    return pd.DataFrame(list(rows.values()), index=list(rows), dtype=object)


def judge(
    claim: Claim, evidence: Evidence, claims: Claims, datasets: Collection[str] | None = None
) -> Judgement:
    """Judge one claim by the rule that `legend` states.

    If the claim is about an average, the mean decides; about any, one comparison suffices.
    Comparisons on a dataset without any value, or not among `datasets`, are left out.
    """
    comparisons = claim.comparisons
    on = [x for x in _datasets(comparisons, evidence) if datasets is None or x in datasets]
    # Two attacks that are compared with each other cancel under the worst case.
    whole = [
        terms and {dict(g).get("dataset") for g in terms} <= {None, *on} for _, terms in comparisons
    ]
    compared = list(compress(comparisons, whole))
    deciding = findings = _tested(claim, compared, evidence, claims)
    effects = {i: f.estimate.effect for i, f in enumerate(findings) if f.estimate}
    by_size = claim.within or claim.over == "any"
    weakest = min(effects, key=lambda i: -abs(effects[i]) if by_size else effects[i], default=None)
    shown = None if weakest is None else findings[weakest]
    if claim.over == "average" and effects:
        parts = [compared[i][1].items() for i in effects]
        mean = _merged((g, weight / len(parts)) for terms in parts for g, weight in terms)
        deciding = [shown] = _tested(claim, [("mean", mean)], evidence, claims)
        if len(parts) < len(compared):
            shown.state = "too few seeds"
    states = {finding.state for finding in deciding}
    verdict = "contradicted" if "contradicted" in states else "undecided"
    if states == {"holds"} or (claim.over == "any" and "holds" in states):
        verdict = "supported"
    related = {key: judge(other, evidence, claims, on) for key, other in claim.related.items()}
    return Judgement(verdict, on, findings, shown, **related)


def _datasets(comparisons: Comparisons, evidence: Evidence) -> list[str]:
    """Return the datasets of comparisons on which there is any value."""
    named = ((dict(g).get("dataset"), g) for _, terms in comparisons for g in terms)
    return list(dict.fromkeys(name for name, g in named if name and evidence(g) is not None))


def _tested(
    claim: Claim, comparisons: Comparisons, evidence: Evidence, claims: Claims
) -> list[Finding]:
    """Test comparisons against the margin, and correct them by Holm's method."""
    margin = claim.within or claim.margin
    margin = math.log(margin or 1) if claim.is_factor else margin
    # Within both margins, or beyond the nearer: two tests, see Schuirmann 1987.
    bounds = [margin, -margin] if claim.within else [margin]
    findings = []
    for label, terms in comparisons:
        samples = {one: evidence(one) for one in terms}
        if claim.of == "spread":
            # The mean distance from the median measures the spread: Brown and Forsythe 1974.
            samples = {
                g: _from_median(s) if isinstance(s, dict) else None for g, s in samples.items()
            }
        estimate = _estimate(terms, samples, claims.min_seeds)
        if estimate is None:
            known = any(sample is not None for sample in samples.values())
            findings.append(Finding(label, "too few seeds" if known else "no data"))
            continue
        # Without any variation the effect is certain, and a tie proves nothing.
        p_at = [float(estimate.effect == b) if (p := estimate.p(b)) is None else p for b in bounds]
        holds = abs(estimate.effect) < margin if claim.within else estimate.effect > margin
        holds = holds or claim.over == "any"
        findings.append(Finding(label, "holds" if holds else "contradicted", estimate, max(p_at)))
    decided = [(finding, finding.p) for finding in findings if finding.p is not None]
    for (finding, _), p in zip(decided, holm([p for _, p in decided]), strict=True):
        if p > claims.alpha:
            finding.state = "undecided"
    return findings


def _from_median(sample: Mapping[int, float]) -> dict[int, float]:
    center = median(sample.values())
    return {seed: abs(value - center) for seed, value in sample.items()}


def _estimate(terms: Terms, samples: Mapping[Group, Sample], min_seeds: int) -> Estimate | None:
    """Estimate the weighted sum of means; `None` with fewer shared seeds.

    Values are summed seed by seed, since models of one seed share the split and the attacked
    graph; printed means are of independent runs.
    """
    printed = [(terms[g], *s, ASSUMED_RUNS) for g, s in samples.items() if isinstance(s, tuple)]
    recorded = [(terms[g], s) for g, s in samples.items() if isinstance(s, dict)]
    if len(printed) == len(terms):
        return Estimate.sum(printed)
    if len(recorded) < len(terms):
        return None
    shared = [seed for seed in recorded[0][1] if all(seed in s for _, s in recorded)]
    # Rounded, since equal differences of floats are not quite equal.
    effects = [round(sum(weight * s[seed] for weight, s in recorded), 9) for seed in shared]
    return Estimate.of(effects) if len(effects) >= min_seeds else None


def legend(alpha: float, worst_of: str) -> str:
    """Explain an entry and the columns; the worst cases belong to one variant."""
    return (
        f"{RULE} Supported: every comparison holds, significantly (at {100 * alpha:g} %) on the "
        "claimed side of the margin; contradicted: one lies significantly on the other; "
        "undecided: neither. Effects are in points of accuracy (× a factor): the weakest "
        "comparison's, or the mean's where the claim is about an average. MLP: the same "
        "comparisons with an MLP in place of the other models. All columns rest on the same "
        "datasets. Published: by the printed means, as of independent runs (Welch). Worst case: by "
        f"the lowest accuracy that any attack reached on each model, fidelity={worst_of}."
    )


def render_claims(verdicts: pd.DataFrame, claims: Claims, *, worst_of: str) -> str:
    """Render the claims of the front pages, then all others that records test, as Markdown."""
    quotes = Counter(claim.quote for claim in verdicts["claim"])
    # Several claims about one sentence need their names.
    titles = {
        name: f"{quote} ({name})" if quotes[quote] > 1 else quote
        for name, quote in tested(verdicts).items()
        if name not in claims.front
    }
    caption = legend(claims.alpha, worst_of)
    front = Table("Claims of the paper", claims_frame(verdicts, claims.front), caption)
    caption = (
        "The others that published records test, in the paper's words; `make claims` lists all:"
    )
    others = Table("", claims_frame(verdicts, titles), caption)
    return f"{show(front)}\n{show(others)}"


def render_verdicts(verdicts: pd.DataFrame, claims: Claims, variants: Sequence[str]) -> str:
    """Render every claim by its name, and where the claims that no record tests are discussed."""

    def counts(variant: str) -> str:
        kinds = Counter(judgement.verdict for judgement in verdicts[variant])
        return ", ".join(f"{kinds[kind]} {kind}" for kind in VERDICTS)

    counted = "; ".join(f"{name}: {counts(name)}" for name in variants)
    if not tested(verdicts):
        counted += f". No record tests any.{published('claims')[:-1]}"
    titles = {str(name): f"{name}: {claim.quote}" for name, claim in verdicts["claim"].items()}
    elsewhere = [
        f'Not decided by records: "{quote}": {where}' for quote, where in claims.elsewhere.items()
    ]
    head = f"Claims of arXiv:2209.07754 by records. {counted}. {legend(claims.alpha, variants[0])}"
    return show(Table("", claims_frame(verdicts, titles), head, notes=elsewhere))


def tested(verdicts: pd.DataFrame) -> dict[str, str]:
    """Return name and quote of the claims that the records of some variant test."""
    judged = verdicts.drop(columns=["claim", "datasets", PRINTED_COLUMN])
    recorded = judged.map(lambda judgement: bool(judgement and judgement.shown)).any(axis=1)
    return {str(name): claim.quote for name, claim in verdicts.loc[recorded, "claim"].items()}


def claims_frame(verdicts: pd.DataFrame, titles: Mapping[str, str]) -> pd.DataFrame:
    """Return claims under their titles as text, a column per evidence."""
    rows = verdicts.loc[list(titles)]
    basis = list(map(_basis, rows["claim"], rows["datasets"]))
    evidence = rows.columns.drop(["claim", "datasets"])
    texts = {name: list(map(in_short, rows["claim"], rows[name])) for name in evidence}
    return pd.DataFrame({"claim": list(titles.values()), "rests on": basis} | texts)


def in_short(claim: Claim, judgement: Judgement | None) -> str:
    """Return verdict, number of comparisons, effect, and comparisons with an MLP, a line each."""
    if judgement is None:
        return "-"
    if {finding.state for finding in judgement.findings} <= {"no data"}:
        return "no data"
    lines = [judgement.verdict, _counts(claim, judgement)]
    if judgement.shown:
        lines.append(_effect(claim, judgement.shown, len(judgement.findings)))
    if judgement.shown and judgement.mlp and judgement.mlp.shown:
        lines.append(f"MLP: {_counts(claim, judgement.mlp)}")
    return "\n".join(lines)


def to_json(verdicts: pd.DataFrame, claims: Claims) -> str:
    """Return all details of each claim as JSON; effects of factors are logarithms."""
    rows = [
        {
            "name": name,
            "claim": row.pop("claim").model_dump(),
            "datasets": row.pop("datasets"),
            "columns": {column: judged and asdict(judged) for column, judged in row.items()},
        }
        for name, row in verdicts.to_dict("index").items()
    ]
    details = claims.model_dump(include={"alpha", "min_seeds", "elsewhere"}) | {"claims": rows}
    return json.dumps(details, indent=2, allow_nan=False, ensure_ascii=False)


def _counts(claim: Claim, judgement: Judgement) -> str:
    """Return the number of comparisons that hold, are contradicted, or were not tested."""
    counts = Counter(finding.state for finding in judgement.findings)
    parts = f" part{'s' if counts.total() > 1 else ''}" if claim.over == "average" else ""
    others = ("contradicted", "too few seeds", "no data")
    rest = [f"{counts[state]} {state}" for state in others if counts[state]]
    return ", ".join([f"{counts['holds']} of {counts.total()}{parts} hold", *rest])


def _effect(claim: Claim, shown: Finding, number: int) -> str:
    """Return the effect that stands for a claim with its interval, in points or as a factor."""
    if shown.estimate is None or shown.p is None:
        return "-"
    which = {"average": "mean ", "all": "weakest ", "any": "largest "}
    values = np.array([shown.estimate.effect, *shown.estimate.interval])
    form = "{:+.1f} [{:+.1f}, {:+.1f}]"
    if claim.is_factor:
        # Far beyond any ratio of two measurements, but finite.
        values, form = np.exp(values.clip(max=700.0)), "×{:.2f} [{:.2f}, {:.2f}]"
    # An effect that ends in 5 is rounded alike, whether its sum was a bit too high or too low.
    text = form.format(*values.round(9)).replace("-", MINUS)
    p = f", p {p_value(shown.p)}" if shown.estimate.error else ""
    return (which[claim.over] if number > 1 or claim.over == "average" else "") + text + p


def _basis(claim: Claim, datasets: list[str]) -> str:
    """Return a claim's datasets and margin."""
    margin = f"{claim.within or claim.margin:g}".replace("-", MINUS)
    if claim.is_factor:
        margin = f"×{claim.within or claim.margin or 1:g}"
    elif claim.within:
        margin = f"±{margin}"
    named = ", ".join(label_of("dataset", name) for name in datasets)
    return f"{named or 'no dataset'}; margin {margin}"
