"""Ranking of models by the area of their worst cases above an MLP, over budgets."""

from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from robust_diffusion.results.frame import named_by_settings
from robust_diffusion.results.table import ResultTable
from robust_diffusion.results.worst_case import (
    MODEL,
    all_of,
    differing,
    feature_limits,
    lowest_within,
    most_frequent,
    recorded_on,
    worst_cases,
)
from robust_diffusion.system.numbers import MINUS, mean_and_std, signed, spread

Point = tuple[int, int]
"""A budget: injected nodes, and most edges of each."""

GRID: Collection[Point] = ((5, 4), (1, 50), (50, 4), (5, 50), (50, 50))
"""20 to 2,500 edges in all: fewer cost hardly any accuracy, and more cost all of it."""

TRAINED = ["seed", "split"]
"""Columns that identify a trained model among those with the same name."""


def thorough_runs(frame: pd.DataFrame, experiments: Collection[str] | None = None) -> pd.DataFrame:
    """Return the rows of `frame` for models that `auto` attacked with knowledge of the model.

    If the runs of a dataset attack different sets of target nodes, the most frequent set counts.

    Args:
        frame: Recorded results.
        experiments: Experiments that requested the models; `None` for all.
    """
    recorded = recorded_on(frame[frame["scale"] == "full"], experiments)
    runs = recorded.drop_duplicates("run")
    counts = Counter(zip(runs["dataset"], runs["difficulty"], strict=True))
    usual = dict(targets for targets, _ in reversed(counts.most_common()))
    rows = recorded[recorded["difficulty"] == recorded["dataset"].map(usual)]
    models = worst_cases(rows)
    return rows.merge(models[models["thorough"].astype(bool)][MODEL], on=MODEL)


def show_leaderboard(
    frame: pd.DataFrame, grid: Collection[Point] | None = None
) -> list[ResultTable]:
    """Return one table per dataset and feature range, the longest first, with models by area.

    The area is between the curve of a model and the MLP, over the logarithm of the injected edges.
    It may be negative: clipping at 0 would tie all models that fail early. A curve is the mean over
    the seeds that were attacked at every budget. If there are none, it is over all seeds, and the
    model has no rank. Nor has one whose curve mixes versions of `auto`, since an area is a mean. If
    versions differ, each row names its own. The reference is
    the clean accuracy of the MLP with the same seed and split; if there is none, its mean in that
    variant, or in all variants.

    Args:
        frame: Recorded results.
        grid: Budgets to show; `None` for those of `GRID` that a dataset has, or for all its
            budgets if it has none of these.
    """
    rows = named_by_settings(thorough_runs(frame))
    rows = rows[rows["nodes"].fillna(0) > 0]  # injections only
    models = lowest_within(worst_cases(rows).dropna(subset="worst"))
    models["point"] = [*zip(models["nodes"], models["edges"], strict=True)]
    groups = models.groupby(["dataset", models["budget"].map(feature_limits)], sort=False)
    tables = {}
    for (dataset, _), group in groups:
        budget = group["budget"].iloc[0]
        features = budget.form or "features {:.4g} to {:.4g}".format(*budget.limits)
        thorough = {*group.loc[group["thorough"], "point"]}
        points = thorough & {*(grid or GRID)} or (set() if grid else thorough)
        if points:
            ordered = sorted(points, key=lambda point: (point[0] * point[1], point))
            table = _table(group, ordered, features)
            tables[-len(table.cells), dataset, budget.limits, budget.form] = table
    return [tables[key] for key in sorted(tables)]


def _table(models: pd.DataFrame, points: list[Point], limits: str) -> ResultTable:
    """Return the table of one dataset; `models` is the result of `lowest_within`."""
    alike = ["variant", *TRAINED]
    mlp = models[models["control"]].groupby(alike)["clean"].max().rename("mlp")
    # Without an MLP, the area is the one below the curve.
    paired = models.join(mlp, on=alike)["mlp"]
    paired = paired.fillna(models["variant"].map(mlp.groupby("variant").mean()))
    paired = paired.fillna(mlp.mean() if len(mlp) else 0)
    models = models.assign(height=100 * (models["worst"] - paired))
    rows = pd.DataFrame([_row(group, points) for _, group in models.groupby(["variant", "model"])])
    ranked = rows["rank"] == ""
    rows["area"] = -rows["area"].round(9)
    places = rows.loc[ranked, "area"].rank(method="min").astype(int)
    rows.loc[ranked, "rank"] = places.astype(str)
    rows["group"] = (
        rows["rank"].map({"not a bound": 1, "versions mixed": 2, "budgets missing": 3}).fillna(0)
    )
    rows["second"] = rows["rank"] != "control"
    rows = rows.sort_values(["group", "area", "second", "model"], kind="stable")
    columns = [] if differing(rows, ["variant"]) else ["variant"]
    columns += ["auto"] if len({*models["version"]} - {0}) < 2 else []
    shown = rows.drop(columns=["group", "area", "second", *columns]).reset_index(drop=True)
    title = f"{models['dataset'].iloc[0]}, {limits.replace('-', MINUS)}: lowest accuracy in % by "
    title += "injected nodes x edges of each, and the area above an MLP in points"
    return ResultTable(title, shown, ["rank", "model", "variant", "by", "flags"], [])


def _row(models: pd.DataFrame, points: list[Point]) -> dict[str, Any]:
    """Return one model's row as text, with its area and flags."""
    on_board = models[models["point"].isin(points)]
    whole = on_board[on_board.groupby(TRAINED)["thorough"].transform("sum") == len(points)]
    used = whole if len(whole) else on_board if len(on_board) else models
    # The mean height of each trained model over the logarithm of the edges, by the trapezoid rule.
    edges = np.log([nodes * edges_each for nodes, edges_each in points])
    versions = sorted({*used["version"], *used["worst_version"]} - {0})
    comparable = whole if len(versions) < 2 else whole[:0]
    curves = (model.set_index("point")["height"] for _, model in comparable.groupby(TRAINED))
    heights = [curve.reindex(points).to_numpy() for curve in curves]
    width = np.ptp(edges)
    means = [np.trapezoid(height, edges) / width if width else height[0] for height in heights]
    area, deviation = mean_and_std(means)
    curve = 100 * used.groupby("point")["worst"].mean()
    flags = sorted(all_of(used["flags"]))
    rank = "versions mixed" if len(whole) else "budgets missing"
    rank = rank if not means else "not a bound" if flags else ""
    return {
        "rank": "control" if models["control"].all() else rank,
        "model": models["model"].iloc[0],
        "variant": models["variant"].iloc[0],
        "seeds": str(used["seed"].nunique()),
        "auto": ", ".join(map(str, versions)) or "-",
        "clean": f"{100 * used['clean'].mean():.2f}",
        **{f"{n}x{edges}": spread(curve.get((n, edges)), None, 2) for n, edges in points},
        "above MLP": signed(area, 2),
        "±": spread(deviation, None, 2),
        "by": most_frequent(used.to_dict("records")) or "-",
        "flags": ", ".join(flags) or "-",
        "area": area,
    }
