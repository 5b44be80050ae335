"""Two models compared by their worst cases, seed by seed."""

from collections.abc import Mapping, Sequence

import pandas as pd

from robust_diffusion.evaluation.records import Record
from robust_diffusion.results.captions import describe_cuts
from robust_diffusion.results.evidence import Evidence
from robust_diffusion.results.model_names import told_apart
from robust_diffusion.results.numbers import signed, spread
from robust_diffusion.results.significance import LEVEL, Estimate, one_sample_p, starred
from robust_diffusion.results.table import ResultTable
from robust_diffusion.results.worst_case import (
    Draw,
    ModelOnSplit,
    differing,
    limits_in_words,
    worst_cases,
)

NAMES = ("dataset", "variant", "budget")
"""Columns that are shown where rows differ in them."""

Tried = Mapping[Draw, ModelOnSplit]


def compare_worst_cases(records: Sequence[Record], first: str, second: str) -> ResultTable:
    """Accuracy of two models, clean, under transferred attacks, and at its lowest.

    Differences are taken between models of one seed and split. They are tested by Student's t-test
    of their mean; a star marks what is significant by Holm's method over the table.

    Args:
        records: As for `worst_cases`.
        first: Name of a model, or flow; the differences are its accuracy less the other's.
        second: Name of the other.

    Returns:
        One row per dataset, variant and budget under which both were tried, and accuracy; none if
        there is no seed of both. A lowest accuracy that is no bound is marked.
    """
    found = worst_cases(told_apart(records))
    rows, changes, notes = [], [], []
    for key, own in found.items():
        if key.model != first:
            continue
        other = found.get(key._replace(model=second), {})
        flags = {name: _flags(of) for name, of in ((first, own), (second, other))}
        tried = [{kind for model in of.values() for kind in model.transfers} for of in (own, other)]
        for kind in ("clean", *sorted(set.intersection(*tried)), "worst"):
            both = pairs(own, other, kind)
            if not both:
                continue
            marked = {name: kind == "worst" and bool(codes) for name, codes in flags.items()}
            changes.append([round(a - b, 9) for a, b in both])
            rows.append(
                {
                    "dataset": key.dataset,
                    "variant": key.variant,
                    "budget": limits_in_words(key.budget),
                    "accuracy": kind,
                    "seeds": len(both),
                    first: _mean([a for a, _ in both], marked=marked[first]),
                    second: _mean([b for _, b in both], marked=marked[second]),
                }
            )
        notes += [
            f"! {name}, {key.dataset}, {key.variant}: not a bound: {', '.join(codes)}"
            for name, codes in flags.items()
            if codes and other
        ]
    cells = pd.DataFrame(rows, columns=None if rows else ["accuracy"])
    if not rows:
        return ResultTable(f"no seed of both {first} and {second}", cells, ["accuracy"], [])
    cells["difference"] = [signed(sum(change) / len(change), 2) for change in changes]
    cells[f"{100 * LEVEL:.0f} % interval"] = [_interval(change) for change in changes]
    cells["p"] = starred([one_sample_p(change, 0.0) for change in changes])
    cells["by seed"] = [", ".join(signed(d, 2) for d in change) for change in changes]
    told = differing(cells, NAMES)
    within = "" if "budget" in told else f" within {cells['budget'].iloc[0]}"
    title = (
        f"{', '.join(cells['dataset'].unique())}: {first} beside {second}, accuracy in %{within}; "
        "differences in points, seed by seed, p of a paired t-test, starred where significant at "
        "5 % by Holm's method over the table"
    )
    shown = cells.drop(columns=[name for name in NAMES if name not in told])
    title = "; ".join([title, *describe_cuts(records)])
    return ResultTable(title, shown, [*told, "accuracy", "by seed"], notes)


def pairs(own: Tried, other: Tried, kind: Evidence) -> list[tuple[float, float]]:
    """Accuracies in % of the seeds and splits on which both models have one, in order."""
    draws = sorted(draw for draw in own.keys() & other.keys())
    found = [(own[draw].lowest.get(kind), other[draw].lowest.get(kind)) for draw in draws]
    return [(100 * a, 100 * b) for a, b in found if a is not None and b is not None]


def _flags(tried: Tried) -> list[str]:
    return sorted({code for model in tried.values() for code in model.flags})


def _mean(values: Sequence[float], *, marked: bool) -> str:
    series = pd.Series(values, dtype=float)
    text = spread(series.mean(), series.std() if len(values) > 1 else None, 2)
    return f"{text} !" if marked else text


def _interval(change: Sequence[float]) -> str:
    found = Estimate.of(change)
    low, high = (signed(end, 2) for end in found.interval)
    return f"{low} to {high}" if found.error else "-"
