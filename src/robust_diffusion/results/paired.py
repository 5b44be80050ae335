"""Two models compared by their worst cases, seed by seed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from robust_diffusion.records.records import Record
from robust_diffusion.results.captions import describe_cuts
from robust_diffusion.results.evidence import THOROUGH
from robust_diffusion.results.frame import named_by_settings, narrow_frame
from robust_diffusion.results.numbers import (
    LEVEL,
    Estimate,
    mean_and_std,
    one_sample_p,
    signed,
    spread,
    starred,
)
from robust_diffusion.results.table import ResultTable
from robust_diffusion.results.worst_case import (
    PAIRED,
    all_of,
    differing,
    limits_in_words,
    worst_cases,
)

_NAMES = ["dataset", "variant", "budget"]
"""Columns that are shown where rows differ in them."""


def compare_worst_cases(records: Sequence[Record], first: str, second: str) -> ResultTable:
    """Compare two models: clean, under transferred attacks, and in their worst case.

    Differences are taken between models of one seed and split. They are tested by Student's t-test
    of their mean; a star marks what is significant by Holm's method over the table.

    Args:
        records: Runs under any threat models.
        first: Name of a model, or flow; the differences are its accuracy less the other's.
        second: Name of the other.

    Returns:
        One row per dataset, variant and budget under which both were tried, and accuracy; none if
        there is no seed of both. Pairs of the lowest accuracy stand by the version of `auto` if
        there are several. A lowest accuracy that is no bound is marked.
    """
    models = worst_cases(named_by_settings(narrow_frame(records)), all_versions=True)
    sides = [models[models["model"] == name] for name in (first, second)]
    both = sides[0].merge(sides[1], on=PAIRED, suffixes=("", " of other"))
    marks = [side.groupby(_NAMES, sort=False)["flags"].agg(all_of).to_dict() for side in sides]
    rows, changes, notes = [], [], []
    for key, of_both in both.groupby(_NAMES, sort=False):
        dataset, variant, budget = of_both.iloc[0][_NAMES]
        named = {"dataset": dataset, "variant": variant, "budget": limits_in_words(budget)}
        flags = {
            name: sorted(codes[key]) for name, codes in zip((first, second), marks, strict=True)
        }
        by_seed = of_both.sort_values(["draw", "split"]).to_dict("records")
        for kind, pairs in _accuracies(by_seed).items():
            changes.append([round(a - b, 9) for a, b in pairs])
            means = {
                name: spread(*mean_and_std(values), 2)
                + (" !" if kind.startswith("worst") and flags[name] else "")
                for name, values in zip((first, second), zip(*pairs, strict=True), strict=True)
            }
            rows.append({**named, "accuracy": kind, "seeds": len(pairs), **means})
        notes += [
            f"! {name}, {dataset}, {variant}: not a bound: {', '.join(codes)}"
            for name, codes in flags.items()
            if codes
        ]
    cells = pd.DataFrame(rows, columns=None if rows else ["accuracy"])
    if not rows:
        return ResultTable(f"no seed of both {first} and {second}", cells, ["accuracy"], [])
    cells["difference"] = [signed(sum(change) / len(change), 2) for change in changes]
    cells[f"{100 * LEVEL:.0f} % interval"] = [
        " to ".join(signed(end, 2) for end in estimate.interval) if estimate.error else "-"
        for estimate in map(Estimate.of, changes)
    ]
    cells["p"] = starred([one_sample_p(change, 0.0) for change in changes])
    cells["by seed"] = [", ".join(signed(d, 2) for d in change) for change in changes]
    columns = differing(cells, _NAMES)
    within = "" if "budget" in columns else f" within {cells['budget'].iloc[0]}"
    title = (
        f"{', '.join(cells['dataset'].unique())}: {first} beside {second}, accuracy in %{within}; "
        "differences in points, seed by seed, p of a paired t-test, starred where significant at "
        "5 % by Holm's method over the table"
    )
    shown = cells.drop(columns=[name for name in _NAMES if name not in columns])
    title = "; ".join([title, *describe_cuts(records)])
    return ResultTable(title, shown, [*columns, "accuracy", "by seed"], notes)


def _accuracies(pairs: Sequence[Mapping[Any, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Pairs of accuracies in % by kind, of the seeds on which both models have one."""
    kinds = {"clean": [(pair["clean"], pair["clean of other"]) for pair in pairs]}
    transfers = [(pair["transfers"], pair["transfers of other"]) for pair in pairs]
    shared = [{name for tried in side for name in tried} for side in zip(*transfers, strict=True)]
    for name in sorted(set.intersection(*shared)):
        kind = f"transfer from {name}" if name else "transfer"
        kinds[kind] = [(a.get(name, math.nan), b.get(name, math.nan)) for a, b in transfers]
    versions = [
        " and ".join(dict.fromkeys(str(v) for v in (row["version"], row["version of other"]) if v))
        for row in pairs
    ]
    for version in sorted(set(versions), reverse=True):
        kind = f"worst, {THOROUGH} {version}" if len(set(versions)) > 1 else "worst"
        alike = (pair for pair, v in zip(pairs, versions, strict=True) if v == version)
        kinds[kind] = [(pair["worst"], pair["worst of other"]) for pair in alike]
    known = {k: [(100 * a, 100 * b) for a, b in ab if a >= 0 and b >= 0] for k, ab in kinds.items()}
    return {kind: values for kind, values in known.items() if values}
