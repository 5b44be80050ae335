"""Judgements as a Markdown table, and as JSON."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from robust_diffusion.paper.claims.contrast import Estimate
from robust_diffusion.paper.claims.judgement import Judgement, Unit

LEFT = ("claim", "the paper's words", "verdict", "printed", "effect [95 % CI]", "rests on", "place")
"""Left-aligned columns."""


def as_frame(judgements: Sequence[Judgement], published: Sequence[Judgement]) -> pd.DataFrame:
    """One row per claim, judged by records and by the paper's own tables."""
    rows = []
    for judgement, own in zip(judgements, published, strict=True):
        estimate, p = judgement.estimate, judgement.p
        g = None if estimate is None else estimate.hedges_g
        verdict: str = judgement.verdict
        if judgement.absent and estimate is not None:
            verdict = f"{verdict} (no data: {', '.join(judgement.absent)})"
        rows.append(
            {
                "claim": judgement.claim.name,
                "the paper's words": judgement.claim.quote,
                "verdict": verdict,
                "printed": "-" if own.verdict == "not enough data" else own.verdict,
                "effect [95 % CI]": describe_effect(estimate, judgement.unit),
                "g": "-" if g is None else f"{g:.2f}",
                "p": "-" if p is None else "<0.0001" if p < 1e-4 else f"{p:.4f}",
                "n": "..".join(map(str, dict.fromkeys(judgement.seeds or (0,)))),
                "rests on": _rests_on(judgement),
                "place": judgement.claim.place,
            }
        )
    return pd.DataFrame(rows)


def side_by_side(
    judged: Mapping[str, Sequence[Judgement]], published: Sequence[Judgement]
) -> pd.DataFrame:
    """One row per claim that any records decide, in each variant and by the published values.

    Args:
        judged: Per variant of the paper the same claims, by records.
        published: The same claims by the paper's own tables.
    """
    quotes = Counter(judgement.claim.quote for judgement in published)
    rows = []
    for *found, own in zip(*judged.values(), published, strict=True):
        if all(judgement.verdict == "not enough data" for judgement in found):
            continue
        # Several claims about one sentence are told apart by their names.
        several = quotes[own.claim.quote] > 1
        words = own.claim.quote + (f" ({own.claim.name})" if several else "")
        names = ("The paper's words", *judged, "published")
        rows.append(dict(zip(names, (words, *map(_in_short, (*found, own))), strict=True)))
    return pd.DataFrame(rows)


def as_json(
    judgements: Sequence[Judgement], published: Sequence[Judgement]
) -> list[dict[str, Any]]:
    """All details of each claim, judged by records and by the paper's own tables."""
    keys = ("reading", "test", "over", "of", "margin")
    return [
        {
            "claim": judgement.claim.name,
            "quote": judgement.claim.quote,
            "place": judgement.claim.place,
            **{key: getattr(judgement.claim, key) for key in keys},
            "unit": judgement.unit,
            "verdict": judgement.verdict,
            "printed": {"verdict": own.verdict, "effect": _plain(own.estimate, own.unit)},
            "effect": _plain(judgement.estimate, judgement.unit),
            "p": judgement.p,
            "seeds": judgement.seeds,
            "absent": judgement.absent,
            "members": [
                {
                    "label": finding.label,
                    "state": finding.state,
                    "effect": _plain(finding.estimate, judgement.unit),
                    "p": finding.p,
                    "p_corrected": finding.p_corrected,
                    "missing": [
                        {"experiment": g.experiment, "measure": g.measure, **dict(g.axes)}
                        for g in finding.missing
                    ],
                }
                for finding in judgement.findings
            ],
        }
        for judgement, own in zip(judgements, published, strict=True)
    ]


def to_json(value: Any) -> str:
    """JSON text of what `as_json` returns; a number that is not finite would be an error."""
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)


def describe_effect(estimate: Estimate | None, unit: Unit) -> str:
    """An effect and its confidence interval, in points or as a factor."""
    if estimate is None:
        return "-"
    shown = [_in_unit(value, unit) for value in (estimate.effect, estimate.low, estimate.high)]
    if unit == "factor":
        return "×{:.2f} [{:.2f}, {:.2f}]".format(*shown)
    return "{:+.2f} [{:+.2f}, {:+.2f}]".format(*shown)


def _in_short(judgement: Judgement) -> str:
    """Verdict and effect in a few characters."""
    if judgement.verdict == "not enough data" or judgement.estimate is None:
        return "-"
    mark = "✓" if judgement.verdict == "supported" else "✗"
    effect = _in_unit(judgement.estimate.effect, judgement.unit)
    if judgement.unit == "factor":
        return f"{mark} ×{effect:.2f}"
    return f"{mark} {effect:+.1f}".replace("-", "−")


def _rests_on(judgement: Judgement) -> str:
    """Number of statements in each state, and the one with the weakest evidence."""
    states = Counter[str](finding.state for finding in judgement.findings)
    counted = [f"{states['holds']} of {len(judgement.findings)} hold"]
    others = ("undecided", "contradicted", "no data")
    counted += [f"{states[state]} {state}" for state in others if states[state]]
    text = ", ".join(counted)
    weakest = judgement.weakest
    if weakest is None or len(judgement.findings) == 1:
        return text
    return f"{text}; weakest: {weakest.label} {describe_effect(weakest.estimate, judgement.unit)}"


def _plain(estimate: Estimate | None, unit: Unit) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {
        "value": _in_unit(estimate.effect, unit),
        "low": _in_unit(estimate.low, unit),
        "high": _in_unit(estimate.high, unit),
        "hedges_g": estimate.hedges_g,
        "seeds": estimate.count,
    }


def _in_unit(value: float, unit: Unit) -> float:
    # Far beyond any ratio of two measurements, but finite.
    shown = math.exp(min(value, 700.0)) if unit == "factor" else value
    # An effect that ends in 5 is shown as such, whichever way its sum was off by its last bit.
    return round(shown, 9)
