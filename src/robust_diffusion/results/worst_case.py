"""One worst case per model: the lowest accuracy that any recorded attack reached, with controls."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from robust_diffusion.attacks.budget import Budget
from robust_diffusion.records.identity import settings_of
from robust_diffusion.records.records import CLEAN, Record, is_tested
from robust_diffusion.results.captions import describe_cuts, describe_limits, ranges
from robust_diffusion.results.evidence import ENSEMBLES, KIND, SEEN, THOROUGH
from robust_diffusion.results.frame import (
    declared_budget,
    model_name,
    named_by_settings,
    narrow_frame,
)
from robust_diffusion.results.numbers import spread
from robust_diffusion.results.table import ResultTable

SHOWN = ["clean", "chance", "transfer", "white_box", "adaptive", "worst"]
"""Columns of accuracies."""

HEADINGS = {"chance": "random injection", "white_box": "white box"}
"""Words for them, where their names are none."""

_KEY = ["dataset", "variant", "model", "budget", "nodes", "edges"]
"""Columns of a frame in which runs that are brought together agree."""

MODEL = [*_KEY, "draw", "split"]
"""Columns that name a trained model and the budget of its attacks."""

PAIRED = ["dataset", "variant", "budget", "draw", "split"]
"""Columns in which two models agree that are compared."""

CONTROL = "mlp"
"""The model that no edge can hurt."""


def recorded_on(
    runs: Mapping[str, Sequence[Record]], experiments: Collection[str] | None = None
) -> list[Record]:
    """Return all finished runs that look for the worst case of some models.

    So one model has one worst case, whichever page shows it. Those are runs of the same model
    within the same budget in which an attack knows the model, or `auto` is transferred to it.

    Args:
        runs: Runs by experiment, as `by_experiment` returns them.
        experiments: That asked for the models; `None` for all models that `auto` attacked with
            knowledge of them.
    """
    every = {run["run"]: run for asked in runs.values() for run in asked if is_tested(run)}
    attacked = {cell: _attacked(run) for cell, run in every.items() if _is_thorough(run)}
    wanted = {
        attacked.get(run["run"]) or _attacked(run)
        for name in (runs if experiments is None else experiments)
        for run in runs.get(name, ())
        if is_tested(run)
        if experiments or (ENSEMBLES & run["accuracy"].keys() and _knows(run))
    }
    return [every[cell] for cell, model in attacked.items() if model in wanted]


def _is_thorough(run: Record) -> bool:
    return _knows(run) or bool(ENSEMBLES & run["accuracy"].keys())


def _knows(record: Record) -> bool:
    return KIND.get(record.get("threat", "")) in SEEN


def _attacked(record: Record) -> tuple[Any, ...]:
    budget = declared_budget(record["budget"]["declared"])
    model = record["dataset"], record["fidelity"], model_name(record)
    return (*model, budget, settings_of(record, CLEAN))


def worst_cases(found: pd.DataFrame, *, all_versions: bool = False) -> pd.DataFrame:
    """Everything that was tried on each trained model within one budget, brought together.

    Of the models of one dataset, variant, name and budget, only those count that were attacked as
    thoroughly as any of them: by the newest version of `auto` that knows the model, else by any
    attack that does. All seeds of the control count, which no version harms.

    Args:
        found: Rows of `frame`, under any threat models.
        all_versions: Keep the models that only an older `auto` attacked; no mean may be taken over
            several versions.

    Returns:
        One row per trained model and budget, by the columns of `MODEL`: the accuracies of
        `SHOWN`, the lowest of each kind in 0..1, NaN where nothing was tried; `transfers`, that of
        each transfer by its surrogates; `by`, the attack that reached the worst case; `flags`,
        codes of what speaks against it as a bound; `seen`, true if an attack knew the model, and
        `thorough` if `auto` did; `version`, the newest of `auto` that did, 0 if none or for the
        control; `tried`, the number of seeds of all versions; `above_mlp`, in points, of a control
        of one seed and split.
    """
    found = found[found["accuracy"].notna()]
    found = found.assign(trained=found.groupby(MODEL, sort=False).ngroup())
    models = found.drop_duplicates("trained").set_index("trained")[MODEL]
    models["clean"] = found[found["attack"] == CLEAN].groupby("trained")["accuracy"].min()
    attacked = found[found["attack"] != CLEAN].assign(worst=found["accuracy"])
    kinds = ["chance", "transfer", *SEEN, "worst"]
    models = models.join(attacked.groupby("trained")[kinds].min())
    by_surrogates = attacked.groupby(["trained", "surrogates"])["transfer"].min()
    models["transfers"] = [
        by_surrogates[i].to_dict() if i in by_surrogates else {} for i in models.index
    ]
    at_worst = attacked[attacked["worst"] == attacked["trained"].map(models["worst"])]
    models["by"] = at_worst.groupby("trained")["by"].min()
    flags = pd.concat(
        [found.set_index("trained")["victim_flags"], at_worst.set_index("trained")["flags"]]
    )
    flags = flags.groupby(level=0).agg(all_of)
    lowest_seen = models[SEEN].min(axis=1)
    weaker = {kind: models[kind] < lowest_seen for kind in ("chance", "transfer")}
    models["flags"] = [
        # Where nothing is left, no attack could do more.
        flags[i].union(f"weaker_than_{kind}" for kind in weaker if weaker[kind][i])
        if models["worst"][i] > 0
        else frozenset()
        for i in models.index
    ]
    seen = attacked[attacked[SEEN].notna().any(axis=1)]
    models["seen"] = models.index.isin(seen["trained"])
    by_auto = seen[seen["attack"].isin(ENSEMBLES)]
    models["version"] = by_auto.groupby("trained")["version"].max()
    models["version"] = models["version"].fillna(0).astype(int)
    models["thorough"] = models["version"] > 0
    models.loc[models["model"] == CONTROL, "version"] = 0
    models = _deepest(models, 1 * models["seen"] + models["thorough"])
    models["tried"] = models.groupby(_KEY, sort=False)["draw"].transform("nunique")
    line = models[models["model"] == CONTROL].set_index(PAIRED)["clean"].rename("line")
    if not all_versions:
        models = _deepest(models, models["version"])
    above = models["worst"] - models.join(line, on=PAIRED)["line"]
    return models.assign(above_mlp=100 * above).reset_index(drop=True)


def _deepest(models: pd.DataFrame, depth: "pd.Series[Any]") -> pd.DataFrame:
    """Return the rows as deep as any of the same dataset, variant, name and budget."""
    keys = [models[column] for column in _KEY]
    return models[depth == depth.groupby(keys, sort=False).transform("max")].copy()


def all_of(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    """Their union."""
    return frozenset().union(*sets)


def worst_case_table(models: pd.DataFrame) -> pd.DataFrame:
    """Clean accuracy, each kind of evidence, the worst case, and what of it is above an MLP.

    Args:
        models: Result of `worst_cases`.

    Returns:
        One row per dataset, variant, budget and model, the highest above the MLP first: the columns
        of `_KEY`; `seeds`, of `tried`, and `splits`; `version`; the columns of `SHOWN`, means in %
        over seeds and splits, NaN where nothing was tried; `fewer`, the number of models behind a
        mean over some of them; `surrogates` of the transfer, under the newest `auto`; `spread`, the
        standard deviation of the worst case; `above_mlp`, the mean over pairs of one seed and split
        in points; `thorough`, true if `auto` attacked the models themselves; `bound`, false where
        any flag was raised; `flags`; and `by`, the attack that most often reached the worst case,
        empty where none cost any accuracy.
    """
    groups = models.groupby(_KEY, sort=False)
    table = pd.DataFrame([dict(zip(_KEY, key, strict=True)) | _row(of) for key, of in groups])
    if table.empty:
        return table
    order = {"dataset": True, "variant": True, "edges": True, "nodes": True, "above_mlp": False}
    order["model"] = True
    return table.sort_values(list(order), ascending=list(order.values()), ignore_index=True)


def _row(models: pd.DataFrame) -> dict[str, Any]:
    flags = sorted(all_of(models["flags"]))
    of_transfer = Counter(name for tried in models["transfers"] for name in tried)
    newest = {name: name.partition(f"; {THOROUGH} ")[2].zfill(3) for name in of_transfer}
    surrogates = max(of_transfer, key=lambda k: (newest[k], of_transfer[k], k), default="")
    transfer = pd.Series([tried.get(surrogates) for tried in models["transfers"]], dtype=float)
    # Sorted, so that rounding does not go by the order of records.
    values = {
        kind: (100 * (transfer if kind == "transfer" else models[kind])).dropna().sort_values()
        for kind in SHOWN
    }
    return {
        "seeds": models["draw"].nunique(),
        "tried": models["tried"].max(),
        "splits": models["split"].nunique(),
        "version": models["version"].max(),
        **{kind: of.mean() for kind, of in values.items()},
        "fewer": {kind: len(of) for kind, of in values.items() if len(of) < len(models)},
        "surrogates": surrogates,
        "spread": values["worst"].std(),
        "above_mlp": models["above_mlp"].sort_values().mean(),
        "thorough": models["thorough"].any(),
        "bound": not flags,
        "flags": ", ".join(flags),
        "by": most_frequent(models),
    }


def most_frequent(models: pd.DataFrame) -> str:
    """The attack that most often reached the worst case; "" where none cost any accuracy."""
    hurt = Counter(models.loc[models["worst"] < models["clean"], "by"])
    if not hurt:
        return ""
    attack = max(sorted(hurt), key=hurt.__getitem__)
    times = hurt[attack]
    return attack if times == len(models) else f"{attack}, {times} of {len(models)}"


def show_worst_cases(records: Sequence[Record]) -> ResultTable:
    """The worst cases of a run as text, a model that is flagged marked as no bound.

    Args:
        records: Of the run, failed runs included.
    """
    table = worst_case_table(worst_cases(named_by_settings(narrow_frame(records))))
    if table.empty:
        return ResultTable("no finished run", pd.DataFrame({"model": []}), ["model"], [])
    headings = HEADINGS | ({} if table["nodes"].any() else {"chance": "random flips"})
    table["budget"] = table["budget"].map(limits_in_words)
    keys = [*differing(table, ["dataset", "variant", "budget"]), "model"]
    draws = ["seeds", "splits"] if table["splits"].max() > 1 else ["seeds"]
    shown = table[[*keys, *draws]].copy()
    if len(set(table["version"]) - {0}) > 1 or (table["seeds"] < table["tried"]).any():
        shown["auto"] = table["version"].astype(str).replace("0", "-")
        counts = zip(table["seeds"], table["tried"], strict=True)
        shown["seeds"] = [str(n) if n == of else f"{n} of {of}" for n, of in counts]
    for kind in (kind for kind in SHOWN[:-1] if table[kind].notna().any()):
        shown[headings.get(kind, kind)] = [
            spread(mean, None, 2) + (f" (n={of[kind]})" if of.get(kind) else "")
            for mean, of in zip(table[kind], table["fewer"], strict=True)
        ]
        if kind == "transfer" and table["surrogates"].any():
            shown["from"] = table["surrogates"].replace("", "-")
    worst = zip(table["worst"], table["spread"], table["bound"], strict=True)
    shown["worst"] = [spread(mean, std, 2) + ("" if bound else " !") for mean, std, bound in worst]
    if table["above_mlp"].notna().any():
        shown["above MLP"] = [spread(points, None, 2) for points in table["above_mlp"]]
    shown["by"] = table["by"].replace("", "-")
    flagged = zip(table["model"], table["flags"], strict=True)
    notes = [f"! {model}: not a bound: {flags}" for model, flags in flagged if flags]
    budgets = "" if "budget" in keys else f" within {table['budget'].iloc[0]}"
    datasets = ", ".join(table["dataset"].unique())
    title = f"{datasets}: lowest accuracy in % that any attack reached{budgets}"
    texts = [*keys, *({"from"} & set(shown)), "by"]
    return ResultTable("; ".join([title, *describe_cuts(records)]), shown, texts, notes)


def limits_in_words(budget: Budget) -> str:
    """Limits of an injection; of a modification, where no node may be injected."""
    kind = "injected_nodes" if budget.max_injected_nodes else "changed_nodes"
    return describe_limits(ranges([asdict(budget)]), [kind])


def differing(frame: pd.DataFrame, columns: Iterable[str]) -> list[str]:
    """The columns in which rows differ."""
    return [column for column in columns if len(set(frame[column])) > 1]
