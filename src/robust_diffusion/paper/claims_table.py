"""Verdicts on claims as Markdown, as text in a frame, and as JSON."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import pandas as pd

from robust_diffusion.paper.axes import label_of
from robust_diffusion.paper.claims import PRINTED_COLUMN, Claim, Claims, Finding, Judgement
from robust_diffusion.results.numbers import MINUS, p_value
from robust_diffusion.results.significance import RULE
from robust_diffusion.system.markdown import markdown_table


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
    return (
        f"**Claims of the paper.** {legend(claims.alpha, worst_of)}\n\n"
        f"{claims_table(verdicts, claims.front)}\n\nThe others that published records test, in the "
        f"paper's words; `make claims` lists all:\n\n{claims_table(verdicts, titles)}\n"
    )


def tested(verdicts: pd.DataFrame) -> dict[str, str]:
    """Return name and quote of the claims that the records of some variant test."""
    judged = verdicts.drop(columns=["claim", "datasets", PRINTED_COLUMN])
    recorded = judged.map(lambda judgement: bool(judgement and judgement.shown)).any(axis=1)
    return {str(name): claim.quote for name, claim in verdicts.loc[recorded, "claim"].items()}


def claims_table(verdicts: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Render claims under their titles as Markdown, the verdict in bold."""
    texts = claims_frame(verdicts, titles)
    cells = texts.replace({r"\A(.+)\n": r"**\1**\n"}, regex=True).replace("\n", "<br>", regex=True)
    return markdown_table(cells, list(cells.columns))


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
    which = {"average": "mean ", "all": "largest " if claim.test == "differ" else "weakest "}
    values = np.array([shown.estimate.effect, *shown.estimate.interval])
    form = "{:+.1f} [{:+.1f}, {:+.1f}]"
    if claim.is_factor:
        # Far beyond any ratio of two measurements, but finite.
        values, form = np.exp(values.clip(max=700.0)), "×{:.2f} [{:.2f}, {:.2f}]"
    # An effect that ends in 5 is shown as such, whichever way its sum was off by its last bit.
    text = form.format(*values.round(9)).replace("-", MINUS)
    p = f", p {p_value(shown.p)}" if shown.estimate.error else ""
    return (which[claim.over] if number > 1 or claim.over == "average" else "") + text + p


def _basis(claim: Claim, datasets: list[str]) -> str:
    """Return datasets and margin of a claim."""
    margin = f"{claim.margin:g}".replace("-", MINUS)
    if claim.is_factor:
        margin = f"×{claim.margin or 1:g}"
    elif claim.test == "equivalent":
        margin = f"±{margin}"
    named = ", ".join(label_of("dataset", name) for name in datasets)
    return f"{named or 'no dataset'}; margin {margin}"
