"""Leaderboard: models ranked by the area of their worst cases above an MLP, over budgets."""

import csv
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from robust_diffusion.attacks.budget import Budget
from robust_diffusion.config import PUBLISHED
from robust_diffusion.evaluation.flag_codes import OF_THE_NUMBER
from robust_diffusion.records.record import Record
from robust_diffusion.records.submission import Submission
from robust_diffusion.results.evidence import ENSEMBLES, KIND, knows_model
from robust_diffusion.results.frame import named_by_settings
from robust_diffusion.results.worst_case import (
    MODEL,
    all_of,
    feature_limits,
    lowest_within,
    most_frequent,
    recorded_on,
    seeks_worst_case,
    worst_cases,
)
from robust_diffusion.system.numbers import Estimate, mean_and_std

Point = tuple[int, int]
"""A budget: injected nodes, and most edges of each."""

GRID: Collection[Point] = ((5, 4), (1, 50), (50, 4), (5, 50), (50, 50))
"""20 to 2,500 edges in all: fewer cost hardly any accuracy, and more cost all of it."""

BOARDS = ("cora", "pubmed")
"""Datasets whose boards also list models that `auto` has not attacked."""

TRANSFERRED = frozenset(["speit", "tdgia"])
"""Attacks of the column `transferred`."""

TRAINED = ["seed", "split"]
"""Columns that identify a trained model among those with the same name."""

SEEDS = 3
"""Seeds that a rank needs; with fewer, there is no useful interval."""


@dataclass(frozen=True)
class KnownModel:
    """A model as people write it."""

    name: str
    kind: str  # flow, GNN, defence, control
    source: str  # name of its entry in references.bib; "" for a model of this project


@cache
def _listed() -> dict[str, KnownModel]:
    path = PUBLISHED / "results" / "leaderboard-models.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {row.pop("model"): KnownModel(**row) for row in csv.DictReader(file)}


def known_model(model: str) -> KnownModel:
    """Return name, kind and source of a model of the frame, such as `grand, adversary`."""
    base, _, settings = model.partition(", ")
    known = _listed().get(base, KnownModel(base, "other", ""))
    if not settings:
        return known
    words = {"adversary": "adversarially trained", "flip adversary": "trained against flips"}
    kind = "defence" if settings in words else known.kind
    return replace(known, name=f"{known.name}, {words.get(settings, settings)}", kind=kind)


def budget_name(point: Point) -> str:
    """Name a budget as columns do: `5x4` for five injected nodes of at most four edges each."""
    return "{}x{}".format(*point)


def budgets_of(board: pd.DataFrame) -> dict[str, Point]:
    """Return the budgets that a board has, by the names of its columns, the smallest first."""
    names = [str(column) for column in board if str(column)[:1].isdigit()]
    points = {name: name.partition("x") for name in names}
    return {
        name: (int(nodes), int(edges))
        for name, (nodes, _, edges) in points.items()
        if board[name].notna().any()
    }


def board_records(records: Iterable[Record]) -> list[Record]:
    """Return the records that can change a board, which are much faster to read than all.

    Args:
        records: Records of any runs.
    """
    records = [*records]
    attacked = {
        (record.dataset, record.model_name)
        for record in records
        if record.is_tested and knows_model(record) and not ENSEMBLES.isdisjoint(record.accuracy)
    }
    return [
        record
        for record in records
        if seeks_worst_case(record)
        or (record.dataset in BOARDS and (record.dataset, record.model_name) not in attacked)
    ]


def thorough_runs(frame: pd.DataFrame, experiments: Collection[str] | None = None) -> pd.DataFrame:
    """Return the rows of `frame` for models that `auto` attacked with knowledge of the model.

    If the runs of a dataset attack different sets of target nodes, the most frequent set counts.

    Args:
        frame: Recorded results.
        experiments: Experiments that requested the models; `None` for all.
    """
    recorded = recorded_on(frame[frame["scale"] == "full"], experiments)
    rows = _at_usual_targets(recorded)
    models = worst_cases(rows)
    return rows.merge(models[models["thorough"].astype(bool)][MODEL], on=MODEL)


def _at_usual_targets(rows: pd.DataFrame) -> pd.DataFrame:
    runs = rows.drop_duplicates("run")
    counts = Counter(zip(runs["dataset"], runs["difficulty"], strict=True))
    usual = dict(targets for targets, _ in reversed(counts.most_common()))
    return rows[rows["difficulty"] == rows["dataset"].map(usual)]


def _other_runs(
    frame: pd.DataFrame, thorough: pd.DataFrame, datasets: Collection[str]
) -> pd.DataFrame:
    """Return the rows of models that `auto` never attacked on these datasets."""
    known = {*zip(thorough["dataset"], thorough["model"], strict=True)}
    pairs = zip(frame["dataset"], frame["model"], strict=True)
    wanted = frame["accuracy"].notna() & frame["dataset"].isin(datasets)
    wanted &= (frame["scale"] == "full") & frame["threat"].isin([*KIND])
    return _at_usual_targets(frame[wanted & np.array([pair not in known for pair in pairs], bool)])


def with_submissions(
    frame: pd.DataFrame, submissions: Iterable[tuple[str, Submission]]
) -> pd.DataFrame:
    """Add a row for each submitted graph, beside those of the run whose model it attacks.

    Args:
        frame: Recorded results.
        submissions: Result of `read_submissions`; those of other runs are left out.
    """
    added = []
    for run, submission in submissions:
        of_run = frame[frame["run"] == run].head(1)
        for row in of_run.to_dict("records"):
            limits = replace(
                row["budget"],
                max_injected_nodes=submission.nodes,
                max_edges_per_injected_node=submission.edges,
            )
            size = {"budget": limits, "nodes": submission.nodes, "edges": submission.edges}
            by = {"attack": submission.attack, "by": f"{submission.author}: {submission.attack}"}
            by["threat"] = "white_box"  # whatever its author knew
            reached = {"accuracy": submission.accuracy, "white_box": submission.accuracy}
            nothing = dict.fromkeys(("chance", "transfer", "adaptive", "version", "surrogates"))
            spare = {"flags": frozenset(), "warnings": (), "retrained": False}
            added.append(row | nothing | size | by | reached | spare)
    if not added:
        return frame
    # `run` differs, so that no column counts the submission as part of the run.
    rows = pd.DataFrame(added).assign(run=lambda of: of["run"] + " submitted")
    return pd.concat([frame, rows[[*frame.columns]].astype(frame.dtypes)], ignore_index=True)


def best_known(frame: pd.DataFrame, run: str, within: Point) -> tuple[float, str]:
    """Return the lowest accuracy of a run's trained model within a budget, and its attack.

    Args:
        frame: Recorded results, with earlier submissions.
        run: Id of the run.
        within: The budget.
    """
    rows = named_by_settings(thorough_runs(frame[frame["nodes"].fillna(0) > 0]))
    models = worst_cases(rows).dropna(subset="worst")
    found = rows[rows["run"] == run].head(1)
    alike = models.merge(found[["dataset", "variant", "model", *TRAINED]])
    alike = alike[(alike["nodes"] <= within[0]) & (alike["edges"] <= within[1])]
    if alike.empty:
        return 1.0, ""
    lowest = alike.sort_values("worst", kind="stable").iloc[0]
    return float(lowest["worst"]), str(lowest["by"])


def leaderboard(
    frame: pd.DataFrame, grid: Collection[Point] | None = None, datasets: Collection[str] = ()
) -> pd.DataFrame:
    """Return one row per model, those of one board together, the longest board first.

    A board is a dataset with one range of injected features. The area is between the curve of a
    model and the MLP, over the logarithm of the injected edges. It may be negative: clipping at 0
    would tie all models that fail early. A curve is the mean over the seeds that were attacked at
    every budget, or over all seeds if there are none. The reference is the clean accuracy of the
    MLP with the same seed and split; if there is none, its mean in that variant, or in all
    variants.

    A model has a rank if it has `SEEDS` seeds with whole curves, all by one version of `auto`, the
    one of the other ranked models, and if no flag puts its number in doubt. The rank is one more
    than the number of models whose interval lies above its own, so models may share it.

    Args:
        frame: Recorded results.
        grid: Budgets to show; `None` for those of `GRID` that a dataset has, or for all its
            budgets if it has none of these.
        datasets: Datasets on which models that `auto` never attacked are listed, too.

    Returns:
        The columns are `dataset`, `features` (the limits of injected features), `split` (hash),
        `variant`, `model`; `control`, true for an MLP; `rank`, and `reason` if there is none;
        `seeds`; `auto`, its versions; `clean`, `transferred` (the worse of SPEIT and TDGIA, at the
        largest budget) and one column per budget, such as `5x4`: accuracies in %, the lowest within
        that budget; `above_mlp`, the area divided by its width, in points, with the limits `low`
        and `high` of its 95 % interval over seeds; `by`, the attack that most often reached the
        worst case; and `flags`, separated by commas.
    """
    frame = frame[frame["nodes"].fillna(0) > 0]  # injections only
    thorough = thorough_runs(frame)
    rows = named_by_settings(pd.concat([thorough, _other_runs(frame, thorough, datasets)]))
    models = worst_cases(rows)
    # No attack changes an MLP, so it needs none.
    models["worst"] = models["worst"].fillna(models["clean"].where(models["control"]))
    models = lowest_within(models.dropna(subset="worst"))
    models["point"] = [*zip(models["nodes"], models["edges"], strict=True)]
    models["limits"] = models["budget"].map(feature_limits)
    boards = []
    for _, group in models.groupby(["dataset", "limits"], sort=False):
        dataset: str = group["dataset"].iloc[0]
        limits: Budget = group["limits"].iloc[0]
        points = _points(group, grid, listed_anyway=dataset in datasets)
        if points:
            on_board = rows["dataset"] == dataset
            on_board &= rows["budget"].map(feature_limits, na_action="ignore") == limits
            board = _board(group, points, _transferred(rows[on_board], points[-1]))
            board.insert(1, "features", _named_limits(limits))
            boards.append((-len(board), dataset, limits.limits, limits.form or "", board))
    ordered = [board for *_, board in sorted(boards, key=lambda key: key[:-1])]
    return pd.concat(ordered, ignore_index=True) if ordered else pd.DataFrame()


def _named_limits(limits: Budget) -> str:
    return limits.form or "features {:.4g} to {:.4g}".format(*limits.limits)


def _points(
    group: pd.DataFrame, grid: Collection[Point] | None, *, listed_anyway: bool
) -> list[Point]:
    """Return the budgets of a board, the smallest first."""
    thorough = {*group.loc[group["thorough"].astype(bool), "point"]}
    if listed_anyway and not thorough:
        thorough = {*group.loc[group["seen"].astype(bool), "point"]} or {*group["point"]}
    points = thorough & {*(grid or GRID)} or (set() if grid else thorough)
    return sorted(points, key=lambda point: (point[0] * point[1], point))


def _transferred(rows: pd.DataFrame, point: Point) -> "pd.Series[float]":
    """Return the mean over seeds of the worse of SPEIT and TDGIA, by variant and model, in %."""
    crafted = rows[rows["attack"].isin(TRANSFERRED) & (rows["threat"] == "black_box")]
    crafted = crafted[(crafted["nodes"] == point[0]) & (crafted["edges"] == point[1])]
    lowest = crafted.groupby(["variant", "model", *TRAINED])["accuracy"].min()
    return 100 * lowest.groupby(["variant", "model"]).mean()


def _board(
    models: pd.DataFrame, points: Sequence[Point], transferred: "pd.Series[float]"
) -> pd.DataFrame:
    """Return the rows of one board; `models` is the result of `lowest_within`."""
    alike = ["variant", *TRAINED]
    mlp = models[models["control"]].groupby(alike)["clean"].max().rename("mlp")
    # Without an MLP, the area is the one below the curve.
    paired = models.join(mlp, on=alike)["mlp"]
    paired = paired.fillna(models["variant"].map(mlp.groupby("variant").mean()))
    paired = paired.fillna(mlp.mean() if len(mlp) else 0)
    models = models.assign(height=100 * (models["worst"] - paired))
    groups: dict[tuple[str, str], list[Mapping[Any, Any]]] = {}
    for model in models.to_dict("records"):
        groups.setdefault((model["variant"], model["model"]), []).append(model)
    rows = [
        _row(group, points) | {"transferred": transferred.get(key, np.nan)}
        for key, group in sorted(groups.items())
    ]
    splits = models["split"].unique()
    split = str(splits[0]) if len(splits) == 1 else ""
    board = _ranked(pd.DataFrame(rows).assign(split=split))
    budgets = [*map(budget_name, points)]
    order = pd.DataFrame(
        {
            "group": board["rank"].isna() & ~board["control"],
            "area": -board["above_mlp"].round(9),
            "worst": -board[budgets[-1]].fillna(-1),
            "second": ~board["control"],
            "model": board["model"],
        }
    )
    board = board.loc[order.sort_values([*order], kind="stable").index]
    before = ["dataset", "split", "variant", "model", "control", "rank", "reason", "seeds", "auto"]
    after = ["above_mlp", "low", "high", "by", "flags"]
    return board[[*before, "clean", "transferred", *budgets, *after]]


def _row(models: Sequence[Mapping[Any, Any]], points: Sequence[Point]) -> dict[str, Any]:
    """Return one model's row without its rank."""
    curves: dict[tuple[Any, ...], dict[Point, Mapping[Any, Any]]] = {}
    for model in models:
        if model["point"] in points:
            trained = tuple(model[name] for name in TRAINED)
            curves.setdefault(trained, {})[model["point"]] = model
    # Seeds that `auto` attacked at every budget, or else all seeds.
    whole = [c for c in curves.values() if sum(m["thorough"] for m in c.values()) == len(points)]
    used = [model for curve in whole or curves.values() for model in curve.values()] or [*models]
    versions = sorted({model[k] for model in used for k in ("version", "worst_version")} - {0})
    # The mean height of each trained model over the logarithm of the edges, by the trapezoid rule.
    edges = np.log([nodes * edges_each for nodes, edges_each in points])
    width = np.ptp(edges)
    heights = [[curve[point]["height"] for point in points] for curve in whole]
    means = [np.trapezoid(height, edges) / width if width else height[0] for height in heights]
    means = means if len(versions) < 2 else []
    seeds = len({model["seed"] for model in used})
    interval = Estimate.of(means).interval if means and seeds >= SEEDS else (np.nan, np.nan)
    worst = {
        budget_name(point): mean_and_std(m["worst"] for m in used if m["point"] == point)[0]
        for point in points
    }
    control = all(model["control"] for model in models)
    missing = [name for name, accuracy in worst.items() if np.isnan(accuracy)]
    flags = all_of(model["flags"] for model in used)
    thorough = any(model["thorough"] for model in models)
    reason = _reason(seeds, versions, missing, len(whole)) if thorough else "not attacked by auto"
    if reason_of_flags := ", ".join(sorted(flags & OF_THE_NUMBER)):
        reason = "; ".join(filter(None, [reason, reason_of_flags]))
    return {
        **{key: models[0][key] for key in ("dataset", "variant", "model")},
        "control": control,
        "reason": "" if control else reason,
        "seeds": seeds,
        "auto": ", ".join(map(str, versions)),
        "clean": 100 * mean_and_std(model["clean"] for model in used)[0],
        **{name: 100 * accuracy for name, accuracy in worst.items()},
        "above_mlp": mean_and_std(means)[0],
        "low": interval[0],
        "high": interval[1],
        "by": most_frequent(used),
        "flags": ", ".join(sorted(flags)),
    }


def _reason(seeds: int, versions: Sequence[int], missing: Sequence[str], whole: int) -> str:
    """Return why a model has no rank as far as its runs show; "" if nothing does."""
    reasons = []
    if missing:
        reasons.append(f"without {', '.join(missing)}")
    elif not whole:
        reasons.append("no seed has every budget")
    if len(versions) > 1:
        reasons.append(f"auto {' and '.join(map(str, versions))} mixed")
    if seeds < SEEDS:
        reasons.append(f"{seeds} of {SEEDS} seeds")
    return "; ".join(reasons)


def _ranked(board: pd.DataFrame) -> pd.DataFrame:
    """Add ranks, and the reason that follows from other rows."""
    fit = board[(board["reason"] == "") & ~board["control"]]
    # All ranks are by one version: the one of most models, the newest of several.
    counts = Counter(fit["auto"])
    version = max(counts, key=lambda name: (counts[name], int(name or 0)), default="")
    others = fit["auto"] != version
    board.loc[fit.index[others], "reason"] = f"not by auto {version}, as the ranked ones"
    fit = fit[~others]
    low, high = fit["low"].to_numpy(), fit["high"].to_numpy()
    # Equal numbers may differ by a rounding error.
    above = (low[None, :] > high[:, None] + 1e-9).sum(axis=1)
    ranks = pd.Series(1 + above, index=fit.index)
    return board.assign(rank=ranks.reindex(board.index).astype("Int64"))
