"""Claims side by side as Markdown, and as JSON."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict

import pandas as pd

from robust_diffusion.paper.axes import label_of
from robust_diffusion.paper.claims.claim import Claim, Claims
from robust_diffusion.paper.claims.judge import STATES, Judgement, Row
from robust_diffusion.results.markdown import markdown_table
from robust_diffusion.results.numbers import MINUS, p_value
from robust_diffusion.results.significance import RULE, Estimate


def legend(alpha: float, worst_of: str) -> str:
    """Explanation of a cell and of the columns; the worst cases are of one variant."""
    return (
        f"{RULE} Supported: every comparison holds, significantly (at {100 * alpha:g} %) on the "
        "claimed side of the margin; contradicted: one lies significantly on the other; "
        "undecided: neither. Effects are in points of accuracy (× a factor): the weakest "
        "comparison's, or the mean's where the claim is about an average. MLP: the same "
        "comparisons with an MLP in place of the other models. All columns rest on the same "
        "datasets. Published: by the printed means, as of independent runs (Welch). Worst case: by "
        "the lowest accuracy that any attack reached on each model, "
        f"fidelity={worst_of}."
    )


def front_table(rows: Iterable[Row], claims: Claims) -> str:
    """The claims of the front pages, in Markdown."""
    found = {row.name: row for row in rows}
    return claims_table([(found[name], title) for name, title in claims.front.items()])


def render_claims(rows: Sequence[Row], claims: Claims, *, worst_of: str) -> str:
    """The claims of the front pages, then all others that records test, in Markdown."""
    quotes = Counter(row.claim.quote for row in rows)
    # Several claims about one sentence are told apart by their names.
    others = [
        (row, row.claim.quote + f" ({row.name})" * (quotes[row.claim.quote] > 1))
        for row in rows
        if row.recorded and row.name not in claims.front
    ]
    return (
        f"**Claims of the paper.** {legend(claims.alpha, worst_of)}\n\n"
        f"{front_table(rows, claims)}\n\nThe others that published records test, in the paper's "
        f"words; `make claims` lists all:\n\n{claims_table(others)}\n"
    )


def claims_table(titled: Sequence[tuple[Row, str]]) -> str:
    """Rows under their titles, in Markdown."""

    def cell(verdict: str, *others: str) -> str:
        return "<br>".join([f"**{verdict}**", *others] if others else [verdict])

    frame = claims_frame(titled, cell)
    return markdown_table(frame, list(frame.columns))


def claims_frame(titled: Sequence[tuple[Row, str]], cell: Callable[..., str]) -> pd.DataFrame:
    """Rows under their titles, a column for each evidence; `cell` joins the lines of a cell."""
    return pd.DataFrame(
        {
            "claim": title,
            "rests on": _basis(row.claim, row.datasets),
            **{name: cell(*in_short(row.claim, of)) for name, of in row.columns.items()},
        }
        for row, title in titled
    )


def in_short(claim: Claim, judgement: Judgement | None) -> list[str]:
    """Verdict, number of comparisons, effect, and comparisons with an MLP, a line each."""
    if judgement is None or judgement.count("no data") == len(judgement.findings):
        return ["-" if judgement is None else "no data"]
    lines = [judgement.verdict, _counts(claim, judgement)]
    if judgement.shown is not None:
        lines.append(_effect(claim, judgement))
        if judgement.mlp is not None and judgement.mlp.shown:
            lines.append(f"MLP: {_counts(claim, judgement.mlp)}")
    return lines


def to_json(rows: Iterable[Row], claims: Claims) -> str:
    """All details of each claim in every column, as JSON text; effects of factors as logarithms."""
    of_file = {key: getattr(claims, key) for key in ("alpha", "min_seeds", "elsewhere")}
    found = of_file | {"claims": [asdict(row) for row in rows]}
    return json.dumps(found, indent=2, allow_nan=False, ensure_ascii=False)


def _counts(claim: Claim, judgement: Judgement) -> str:
    """Number of comparisons that hold, are contradicted, or were not tested."""
    number = len(judgement.findings)
    parts = f" part{'s' if number > 1 else ''}" if claim.over == "average" else ""
    counts = {state: judgement.count(state) for state in STATES if state != "undecided"}
    others = [f"{count} {state}" for state, count in counts.items() if count and state != "holds"]
    return ", ".join([f"{counts['holds']} of {number}{parts} hold", *others])


def _effect(claim: Claim, judgement: Judgement) -> str:
    """The effect that stands for a claim, which that is if there are several, and its interval."""
    shown = judgement.shown
    if shown is None or shown.estimate is None or shown.p is None:
        return "-"
    which = "largest " if claim.test == "differ" else "weakest "
    which = "mean " if claim.over == "average" else which if len(judgement.findings) > 1 else ""
    p = f", p {p_value(shown.p)}" if shown.estimate.error else ""
    return f"{which}{_interval(shown.estimate, claim.unit)}{p}"


def _basis(claim: Claim, datasets: Iterable[str]) -> str:
    """Datasets and margin of a claim."""
    margin = f"{claim.margin:g}".replace("-", MINUS)
    if claim.unit == "factor":
        margin = f"×{claim.margin or 1:g}"
    elif claim.test == "equivalent":
        margin = f"±{margin}"
    named = ", ".join(label_of("dataset", name) for name in datasets)
    return f"{named or 'no dataset'}; margin {margin}"


def _interval(estimate: Estimate, unit: str) -> str:
    """An effect and its confidence interval, in points or as a factor."""
    values = [estimate.effect, *estimate.interval]
    if unit == "factor":
        # Far beyond any ratio of two measurements, but finite.
        values = [math.exp(min(value, 700.0)) for value in values]
    # An effect that ends in 5 is shown as such, whichever way its sum was off by its last bit.
    effect, low, high = (round(value, 9) for value in values)
    if unit == "factor":
        return f"×{effect:.2f} [{low:.2f}, {high:.2f}]"
    return f"{effect:+.1f} [{low:+.1f}, {high:+.1f}]".replace("-", MINUS)
