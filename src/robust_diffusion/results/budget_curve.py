"""Worst case against budget: lowest accuracy by injected nodes, next to an MLP."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from robust_diffusion.records.records import Record
from robust_diffusion.results.captions import describe_cuts
from robust_diffusion.results.entry import named_seeds
from robust_diffusion.results.frame import named_by_settings, narrow_frame
from robust_diffusion.results.numbers import spread
from robust_diffusion.results.table import NOTHING, ResultTable
from robust_diffusion.results.worst_case import (
    CONTROL,
    differing,
    lowest_within,
    worst_case_table,
    worst_cases,
)

CURVE = ["dataset", "variant", "model", "edges"]
"""Columns of `worst_case_table` that tell curves apart."""

_POINT = 0.01
"""Accuracy, in 0..1, below which a difference between budgets says nothing."""


def budget_curve(records: Sequence[Record]) -> pd.DataFrame:
    """Return the worst case of each model by budget, and flags that say it is not a bound.

    Args:
        records: Runs under any threat models, of one limit on edges in all.

    Returns:
        The rows of `worst_case_table`, those of one curve by ascending `nodes`, and a column
        `stalled`: seeds and figures of `budget_without_effect`, the same on all of a curve, empty
        without that flag. `bound` is false on a curve that stalls.
    """
    models = worst_cases(named_by_settings(narrow_frame(records)))
    # Each budget on the same models, as far as there are any.
    counts = models.groupby([*CURVE, "draw", "split"])["nodes"].transform("nunique")
    on_all = counts == models.groupby(CURVE)["nodes"].transform("nunique")
    none_on_all = ~on_all.groupby([models[column] for column in CURVE]).transform("any")
    models = lowest_within(models[on_all | none_on_all], ["edges"])
    table = worst_case_table(models)
    if table.empty:
        return table
    # Nothing that is injected has an effect on the control.
    curves = models[models["model"] != CONTROL].groupby(CURVE)
    stalled = {curve: _stalled(points) for curve, points in curves}
    named = table[CURVE].itertuples(index=False, name=None)
    table["stalled"] = [stalled.get(name, "") for name in named]
    table["bound"] &= table["stalled"] == ""
    return table.sort_values([*CURVE, "nodes"], ignore_index=True)


def _stalled(curve: pd.DataFrame) -> str:
    """Return the seeds on which more budget does no more harm, and the figures of the first."""
    runs = curve.dropna(subset="worst").groupby(["draw", "split"])[["nodes", "worst"]]
    texts = [
        (draw, budget_without_effect([*points.itertuples(index=False, name=None)]))
        for (draw, _), points in runs
    ]
    stalled = [(draw, text) for draw, text in texts if text]
    seeds: list[Any] = sorted({draw for draw, _ in stalled})
    return f"{stalled[0][1]} ({named_seeds(seeds)})" if stalled else ""


def budget_without_effect(accuracies: Sequence[tuple[int, float]]) -> str:
    """Return the figures of an attack that does no more harm with more budget, else "".

    An attack that already reached 0 cannot do more.

    Args:
        accuracies: Per budget, in injected nodes, the accuracy in 0..1; at least two budgets.
    """
    ordered = sorted(accuracies)
    (few, first), (many, last) = ordered[0], ordered[-1]
    if few < many and last > _POINT and last >= first - _POINT:
        return f"{100 * first:.2f} % with {few} injected, {100 * last:.2f} % with {many}"
    return ""


def show_budgets(records: Sequence[Record]) -> ResultTable:
    """Format the worst case of each model by injected nodes, next to the MLP.

    Curves of equal edges per injected node are grouped, the highest above the MLP first.

    Args:
        records: Of the run, failed runs included.
    """
    frame = budget_curve(records)
    if frame.empty:
        return NOTHING
    blocks = [*differing(frame, ["dataset", "variant"]), "edges"]
    frame["height"] = -frame.groupby(CURVE)["above_mlp"].transform("mean")
    frame = frame.sort_values([*blocks, "height"], kind="stable")
    lines, notes = [], []
    for _, curve in frame.groupby([*blocks, "model"], sort=False):
        first = curve.iloc[0]
        named = {block: str(first[block]) for block in blocks} | {"model": first["model"]}
        measured = {"seeds": str(curve["seeds"].max()), "clean": f"{first['clean']:.2f}"}
        lines.append(
            named | measured | {str(row["nodes"]): _entry(row) for _, row in curve.iterrows()}
        )
        if signs := list(_signs(curve)):
            where = ", ".join([*(named[b] for b in blocks[:-1]), f"{named['edges']} edges each"])
            notes.append(f"! {first['model']}, {where}: not a bound: {'; '.join(signs)}")
    order = [*lines[0].keys()][: len(blocks) + 3]
    nodes = [str(nodes) for nodes in sorted(frame["nodes"].unique())]
    cells = pd.DataFrame(lines)[[*order, *nodes]].fillna("-")
    title = (
        f"{', '.join(frame['dataset'].unique())}: lowest accuracy in % that any attack reached, by "
        "edges of each injected node and, in columns, injected nodes or fewer; above the MLP in "
        "**bold**"
    )
    return ResultTable(
        "; ".join([title, *describe_cuts(records)]), cells, [*blocks, "model"], notes
    )


def _entry(row: "pd.Series[Any]") -> str:
    text = spread(row["worst"], row["spread"], 2)
    if math.isnan(row["worst"]):
        return text
    if not row["bound"]:
        return f"{text} !"
    return f"**{text}**" if row["above_mlp"] > 0 else text


def _signs(curve: pd.DataFrame) -> Iterator[str]:
    """Return the flags of a curve, those of single budgets with their injected nodes."""
    if stalled := curve["stalled"].iloc[0]:
        yield f"budget_without_effect: {stalled}"
    for flags, rows in curve[curve["flags"] != ""].groupby("flags"):
        yield f"{flags} with {', '.join(map(str, rows['nodes']))} injected"
