"""Claims side by side as Markdown, and as JSON."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, get_args

import pandas as pd

from robust_diffusion.paper.axes import label_of
from robust_diffusion.paper.claims.claim import Claim, Claims, Unit
from robust_diffusion.paper.claims.columns import Row
from robust_diffusion.paper.claims.contrast import Estimate
from robust_diffusion.paper.claims.judgement import Finding, Judgement, State
from robust_diffusion.results.markdown import markdown_table
from robust_diffusion.results.numbers import MINUS


def legend(alpha: float, worst_of: str) -> str:
    """Explanation of a cell and of the columns; the worst cases are of one variant."""
    level, rest = f"{100 * alpha:g} %", f"{100 - 100 * alpha:g} %"
    return (
        f"Supported: every comparison holds at {level}; contradicted: the interval of one lies "
        "wholly on the wrong side of the margin; undecided: neither. Effects are in points of "
        "accuracy (× a factor): the weakest comparison's, or the mean where the claim is about an "
        f"average. Their {rest} intervals are two-sided and simultaneous over the comparisons "
        "(Bonferroni), hence wider than the one-sided tests, which need no correction where all "
        "have to hold. MLP: the same comparisons with an MLP in place of the other models. All "
        "columns rest on the same datasets. Published: by the printed means. Worst case: by the "
        f"lowest accuracy that any attack reached on each model, fidelity={worst_of}."
    )


def front_table(rows: Iterable[Row], claims: Claims) -> str:
    """The claims of the front pages, in Markdown."""
    found = {row.claim.name: row for row in rows}
    return claims_table([(found[name], title) for name, title in claims.front.items()])


def render_claims(rows: Sequence[Row], claims: Claims, *, worst_of: str) -> str:
    """The claims of the front pages, then all others that records test, in Markdown."""
    quotes = Counter(row.claim.quote for row in rows)
    others = [row for row in rows if row.recorded and row.claim.name not in claims.front]
    # Several claims about one sentence are told apart by their names.
    titled = [
        (row, row.claim.quote + (f" ({row.claim.name})" if quotes[row.claim.quote] > 1 else ""))
        for row in others
    ]
    return (
        f"**Claims of the paper.** {legend(claims.alpha, worst_of)}\n\n"
        f"{front_table(rows, claims)}\n\nThe others that published records test, in the paper's "
        f"words; `make claims` lists all:\n\n{claims_table(titled)}\n"
    )


def claims_table(titled: Sequence[tuple[Row, str]]) -> str:
    """Rows under their titles, in Markdown."""
    shown = [
        {
            "claim": title,
            "rests on": describe_basis(row.claim, row.datasets),
            **{name: _cell(judgement) for name, judgement in row.columns.items()},
        }
        for row, title in titled
    ]
    frame = pd.DataFrame(shown)
    return markdown_table(frame, list(frame.columns))


def _cell(judgement: Judgement | None) -> str:
    verdict, *others = in_short(judgement)
    return "<br>".join([f"**{verdict}**", *others] if others else [verdict])


def in_short(judgement: Judgement | None) -> list[str]:
    """Verdict, number of comparisons, effect, and comparisons with an MLP, a line each."""
    if judgement is None or judgement.count("no data") == len(judgement.findings):
        return ["-" if judgement is None else "no data"]
    lines = [judgement.verdict, describe_counts(judgement)]
    if judgement.shown is not None:
        lines.append(describe_effect(judgement))
        if judgement.mlp is not None and judgement.mlp.shown:
            lines.append(f"MLP: {describe_counts(judgement.mlp)}")
    return lines


def describe_counts(judgement: Judgement) -> str:
    """Number of comparisons that hold, are contradicted, or were not tested."""
    number = len(judgement.findings)
    parts = f" part{'s' if number > 1 else ''}" if judgement.claim.over == "average" else ""
    untold: tuple[State, ...] = ("holds", "undecided")
    counts = {state: judgement.count(state) for state in get_args(State) if state not in untold}
    others = [f"{count} {state}" for state, count in counts.items() if count]
    return ", ".join([f"{judgement.count('holds')} of {number}{parts} hold", *others])


def describe_effect(judgement: Judgement) -> str:
    """The effect that stands for a claim, which that is if there are several, and its interval."""
    interval = describe_interval(judgement.estimate, judgement.claim.unit, 1)
    if len(judgement.findings) == 1:
        return interval
    if judgement.claim.over == "average":
        return f"mean {interval}"
    return f"{'largest' if judgement.claim.test == 'differ' else 'weakest'} {interval}"


def describe_basis(claim: Claim, datasets: Iterable[str]) -> str:
    """Datasets and margin of a claim."""
    margin = f"{claim.margin:g}".replace("-", MINUS)
    if claim.unit == "factor":
        margin = f"×{claim.margin or 1:g}"
    elif claim.test == "equivalent":
        margin = f"±{margin}"
    named = ", ".join(label_of("dataset", name) for name in datasets)
    return f"{named or 'no dataset'}; margin {margin}"


def describe_interval(estimate: Estimate | None, unit: Unit, digits: int = 2) -> str:
    """An effect and its confidence interval, in points or as a factor."""
    if estimate is None:
        return "-"
    shown = [_in_unit(value, unit) for value in (estimate.effect, estimate.low, estimate.high)]
    if unit == "factor":
        return "×{:.2f} [{:.2f}, {:.2f}]".format(*shown)
    effect, low, high = (f"{value:+.{digits}f}".replace("-", MINUS) for value in shown)
    return f"{effect} [{low}, {high}]"


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """All details of each claim in every column."""
    keys = ("quote", "place", "reading", "test", "over", "of", "margin")
    return [
        {
            "claim": row.claim.name,
            **{key: getattr(row.claim, key) for key in keys},
            "datasets": row.datasets,
            "columns": {name: _details(judgement) for name, judgement in row.columns.items()},
        }
        for row in rows
    ]


def to_json(value: Any) -> str:
    """JSON text of what `as_json` returns; a number that is not finite would be an error."""
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)


def _details(judgement: Judgement | None) -> dict[str, Any] | None:
    if judgement is None:
        return None
    unit = judgement.claim.unit
    found = {key: getattr(judgement, key) for key in ("verdict", "p", "seeds", "absent")}
    comparisons = [_finding(finding, unit) for finding in judgement.findings]
    shown = judgement.shown and _finding(judgement.shown, unit)
    nested = {"shown": shown, "comparisons": comparisons, "mlp": _details(judgement.mlp)}
    return {"unit": unit, **found, **nested}


def _finding(finding: Finding, unit: Unit) -> dict[str, Any]:
    effect = finding.estimate and {
        "value": _in_unit(finding.estimate.effect, unit),
        "low": _in_unit(finding.estimate.low, unit),
        "high": _in_unit(finding.estimate.high, unit),
        "hedges_g": finding.estimate.hedges_g,
        "seeds": finding.estimate.count,
    }
    missing = [
        {"experiment": g.experiment, "measure": g.measure, **dict(g.axes)} for g in finding.missing
    ]
    found = {"label": finding.label, "state": finding.state, "p": finding.p}
    return {**found, "effect": effect, "missing": missing}


def _in_unit(value: float, unit: Unit) -> float:
    # Far beyond any ratio of two measurements, but finite.
    shown = math.exp(min(value, 700.0)) if unit == "factor" else value
    # An effect that ends in 5 is shown as such, whichever way its sum was off by its last bit.
    return round(shown, 9)
