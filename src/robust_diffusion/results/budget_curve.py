"""Worst case against budget: lowest accuracy by injected nodes, beside an MLP."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from robust_diffusion.evaluation.flags import budget_without_effect
from robust_diffusion.evaluation.records import Record
from robust_diffusion.results.captions import describe_cuts
from robust_diffusion.results.model_names import told_apart
from robust_diffusion.results.numbers import spread
from robust_diffusion.results.table import ResultTable
from robust_diffusion.results.worst_case import (
    CONTROL,
    Draw,
    Key,
    ModelOnSplit,
    differing,
    table_of,
    worst_cases,
)

Curve = Mapping[int, Mapping[Draw, ModelOnSplit]]
"""Injected nodes -> one model under everything that was tried within that budget."""

CURVE = ["dataset", "variant", "model", "edges"]
"""Columns of `worst_case_table` that tell curves apart."""


def budget_curve(records: Sequence[Record]) -> pd.DataFrame:
    """Worst case of each model by budget, and signs that it is no bound.

    Args:
        records: As for `worst_cases`, of one limit on edges in all.

    Returns:
        The rows of `worst_case_table`, those of one curve by ascending `nodes`, and a column
        `stalled`: seeds and figures of `budget_without_effect`, the same on all of a curve, empty
        without that flag. `bound` is false on a curve that stalls.
    """
    records = told_apart(records)
    found = worst_cases(records)
    curves: dict[Key, dict[int, dict[Draw, ModelOnSplit]]] = {}
    for key, drawn in found.items():
        curves.setdefault(_without_nodes(key), {})[key.budget.max_injected_nodes] = drawn
    for curve in curves.values():  # each budget on the same models, as far as there are any
        shared = set.intersection(*(set(drawn) for drawn in curve.values()))
        for drawn in curve.values():
            for draw in drawn.keys() - shared if shared else ():
                del drawn[draw]
    frame = table_of(found)
    if frame.empty:
        return frame
    stalled = {
        (key.dataset, key.variant, key.model, key.budget.max_edges_per_injected_node): text
        for key, curve in curves.items()
        # Nothing that is injected has an effect on the control.
        if key.model != CONTROL and (text := _stalled(curve))
    }
    named = frame[CURVE].itertuples(index=False, name=None)
    frame["stalled"] = [stalled.get(name, "") for name in named]
    frame["bound"] &= frame["stalled"] == ""
    return frame.sort_values([*CURVE, "nodes"], ignore_index=True)


def _without_nodes(key: Key) -> Key:
    return key._replace(budget=replace(key.budget, max_injected_nodes=0))


def _stalled(curve: Curve) -> str:
    """Seeds on which more budget has no more effect, and the figures of the first."""
    found = list(_flagged(curve))
    if not found:
        return ""
    seeds = sorted({seed for seed, _ in found})
    return f"{found[0][1]} (seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))})"


def _flagged(curve: Curve) -> Iterator[tuple[int, str]]:
    for seed, split in dict.fromkeys(draw for drawn in curve.values() for draw in drawn):
        reached = [
            (nodes, drawn[seed, split].lowest["worst"])
            for nodes, drawn in curve.items()
            if "worst" in drawn.get((seed, split), ModelOnSplit()).lowest
        ]
        if len(reached) > 1 and (flag := budget_without_effect(reached)):
            yield seed, flag.detail


def show_budgets(records: Sequence[Record]) -> ResultTable:
    """The worst case of each model by injected nodes as text, beside the MLP.

    Curves of equal edges per injected node stand together, the highest above the MLP first.

    Args:
        records: Of the run, failed cells included.
    """
    frame = budget_curve(records)
    if frame.empty:
        return ResultTable("no finished cell", pd.DataFrame({"model": []}), ["model"], [])
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
        "edges of each injected node and, in columns, injected nodes; above the MLP in **bold**"
    )
    return ResultTable(
        "; ".join([title, *describe_cuts(records)]), cells, [*blocks, "model"], notes
    )


def _entry(row: "pd.Series[Any]") -> str:
    if math.isnan(row["worst"]):
        return "-"
    text = spread(row["worst"], None if math.isnan(row["spread"]) else row["spread"], 2)
    if not row["bound"]:
        return f"{text} !"
    return f"**{text}**" if row["above_mlp"] > 0 else text


def _signs(curve: pd.DataFrame) -> Iterator[str]:
    """Flags of a curve, those of single budgets with their injected nodes."""
    if stalled := curve["stalled"].iloc[0]:
        yield f"budget_without_effect: {stalled}"
    for flags, of in curve[curve["flags"] != ""].groupby("flags"):
        yield f"{flags} with {', '.join(map(str, of['nodes']))} injected"
