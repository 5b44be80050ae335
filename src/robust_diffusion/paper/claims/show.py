"""Judgements as a Markdown table, and as JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from robust_diffusion.paper.claims.contrast import Estimate
from robust_diffusion.paper.claims.judgement import Finding, Judgement, Unit

LEFT = ("claim", "the paper's words", "verdict", "printed", "effect [95 % CI]", "rests on", "place")


def as_frame(judgements: Sequence[Judgement], printed: Sequence[Judgement]) -> pd.DataFrame:
    """One row per claim.

    Args:
        judgements: By records.
        printed: The same claims by the paper's own tables.
    """
    rows = []
    for judgement, own in zip(judgements, printed, strict=True):
        estimate = judgement.estimate
        rows.append(
            {
                "claim": judgement.claim.name,
                "the paper's words": judgement.claim.quote,
                "verdict": _verdict(judgement),
                "printed": "-" if own.verdict == "not enough data" else own.verdict,
                "effect [95 % CI]": describe_effect(estimate, judgement.unit),
                "g": "-" if estimate is None else _number(estimate.hedges_g),
                "p": "-" if judgement.p is None else _p(judgement.p),
                "n": _seeds(judgement),
                "rests on": _rests_on(judgement),
                "place": judgement.claim.place,
            }
        )
    return pd.DataFrame(rows)


def side_by_side(
    judged: Mapping[str, Sequence[Judgement]], printed: Sequence[Judgement]
) -> pd.DataFrame:
    """One row per claim that any records decide: what each reading, and the print, says of it.

    Args:
        judged: Per reading of the paper the same claims, by records.
        printed: The same claims by the paper's own tables.
    """
    rows = []
    for k, own in enumerate(printed):
        found = {reading: judgements[k] for reading, judgements in judged.items()}
        if all(judgement.verdict == "not enough data" for judgement in found.values()):
            continue
        cells = {reading: _in_short(judgement) for reading, judgement in found.items()}
        # Two readings of one sentence are told apart by their names.
        quoted = [judgement.claim.quote for judgement in printed].count(own.claim.quote)
        words = own.claim.quote + (f" ({own.claim.name})" if quoted > 1 else "")
        rows.append({"The paper's words": words} | cells | {"print": _in_short(own)})
    return pd.DataFrame(rows)


def _in_short(judgement: Judgement) -> str:
    if judgement.verdict == "not enough data" or judgement.estimate is None:
        return "-"
    mark = "✓" if judgement.verdict == "supported" else "✗"
    effect = _in_unit(judgement.estimate.effect, judgement.unit)
    if judgement.unit == "factor":
        return f"{mark} ×{effect:.2f}"
    return f"{mark} {effect:+.1f}".replace("-", "−")


def as_json(judgements: Sequence[Judgement], printed: Sequence[Judgement]) -> list[dict[str, Any]]:
    """Everything that is known of each claim, for other programs.

    Args:
        judgements: By records.
        printed: The same claims by the paper's own tables.
    """
    return [
        {
            "claim": judgement.claim.name,
            "quote": judgement.claim.quote,
            "place": judgement.claim.place,
            "reading": judgement.claim.reading,
            "test": judgement.claim.test,
            "over": judgement.claim.over,
            "of": judgement.claim.of,
            "margin": judgement.claim.margin,
            "unit": judgement.unit,
            "verdict": judgement.verdict,
            "printed": {"verdict": own.verdict, "effect": _plain(own.estimate, own.unit)},
            "effect": _plain(judgement.estimate, judgement.unit),
            "p": judgement.p,
            "seeds": judgement.seeds,
            "absent": judgement.absent,
            "members": [_member(finding, judgement.unit) for finding in judgement.findings],
        }
        for judgement, own in zip(judgements, printed, strict=True)
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


def _verdict(judgement: Judgement) -> str:
    if not judgement.absent or judgement.estimate is None:
        return judgement.verdict
    return f"{judgement.verdict} (no data: {', '.join(judgement.absent)})"


def _seeds(judgement: Judgement) -> str:
    if judgement.seeds is None:
        return "0"
    fewest, most = judgement.seeds
    return str(fewest) if fewest == most else f"{fewest}..{most}"


def _rests_on(judgement: Judgement) -> str:
    """How many of its statements hold, and the one with the weakest evidence."""
    states = {s: len(judgement.of(s)) for s in ("holds", "undecided", "contradicted", "no data")}
    counted = [f"{states['holds']} of {len(judgement.findings)} hold"]
    counted += [
        f"{number} {state}" for state, number in states.items() if number and state != "holds"
    ]
    text = ", ".join(counted)
    weakest = judgement.weakest
    if weakest is None or len(judgement.findings) == 1:
        return text
    return f"{text}; weakest: {weakest.label} {describe_effect(weakest.estimate, judgement.unit)}"


def _member(finding: Finding, unit: Unit) -> dict[str, Any]:
    return {
        "label": finding.label,
        "state": finding.state,
        "effect": _plain(finding.estimate, unit),
        "p": finding.p,
        "p_corrected": finding.p_corrected,
        "missing": [
            {"experiment": g.experiment, "measure": g.measure, **dict(g.axes)}
            for g in finding.missing
        ],
    }


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


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _p(value: float) -> str:
    return "<0.0001" if value < 1e-4 else f"{value:.4f}"
