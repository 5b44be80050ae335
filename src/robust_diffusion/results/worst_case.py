"""Worst case of each model: the lowest accuracy under any recorded attack, next to controls."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from robust_diffusion.attacks.budget import Budget
from robust_diffusion.evaluation.flag_codes import remedy_of
from robust_diffusion.records.identity import settings_of
from robust_diffusion.records.record import CLEAN, Record
from robust_diffusion.results.budgets import describe_cuts, describe_limits, ranges
from robust_diffusion.results.evidence import ENSEMBLES, KIND, SEEN, THOROUGH, knows_model
from robust_diffusion.results.frame import differing_keys, named_by_settings
from robust_diffusion.results.show import Table
from robust_diffusion.system.numbers import mean_and_std

SHOWN = ["clean", "chance", "transfer", "white_box", "adaptive", "worst"]
"""Columns of accuracies."""

HEADINGS = {"chance": "random injection", "white_box": "white box"}
"""Headings of these columns that differ from their names."""

_KEY = ["dataset", "variant", "model", "budget", "nodes", "edges"]
"""Columns of a frame in which runs must agree to be combined."""

MODEL = [*_KEY, "seed", "split"]
"""Columns that identify a trained model and the budget of its attacks."""

_READ = ["attack", "accuracy", "chance", "transfer", "white_box", "adaptive", "surrogates"]
_READ += ["version", "by", "flags", "victim_flags", "retrained", "record"]
"""Columns of a frame from which worst cases are computed."""

PAIRED = ["dataset", "variant", "budget", "seed", "split"]
"""Columns in which two models must agree to be compared."""

CONTROL = "mlp"
"""The model that ignores the edges."""


def seeks_worst_case(record: Record) -> bool:
    """Return whether a finished run has an attack that knows the model, or `auto`."""
    return record.is_tested and (knows_model(record) or not ENSEMBLES.isdisjoint(record.accuracy))


def recorded_on(rows: pd.DataFrame, experiments: Collection[str] | None = None) -> pd.DataFrame:
    """Return the rows of all finished runs that look for the worst case of some models.

    These are the runs of the same model and budget in which an attack knows the model, or `auto` is
    transferred to it, from all experiments. A model thus has the same worst case on every page.

    Args:
        rows: Rows of `frame`.
        experiments: Experiments that requested the models; `None` for all models that `auto`
            attacked with knowledge of the model.
    """
    tested = rows[rows["accuracy"].notna()]
    seen = tested["threat"].map(KIND).isin(SEEN)
    thorough = tested["attack"].isin(ENSEMBLES).groupby(tested["run"]).transform("any")
    wanted = seen & thorough
    if experiments is not None:
        wanted = tested["experiments"].map(lambda names: not {*names}.isdisjoint(experiments))
    records = dict(zip(tested["run"], tested["record"], strict=True))
    models = tested["run"].map({run: _attacked(record) for run, record in records.items()})
    return tested[(seen | thorough) & models.isin({*models[wanted.astype(bool)]})]


def _attacked(record: Record) -> Hashable:
    model = record.dataset, record.fidelity, record.model_name
    return (*model, record.budget, settings_of(record, CLEAN))


def worst_cases(results: pd.DataFrame, *, all_versions: bool = False) -> pd.DataFrame:
    """Combine all attacks on each trained model within one budget.

    Among models of the same dataset, variant, name and budget, only the most thoroughly attacked
    ones count: those attacked by the newest version of `auto` with knowledge of the model, or if
    there are none, by any attack with knowledge of the model. All seeds of the control count, since
    no attack harms it.

    Args:
        results: Rows of `frame`, under any threat models.
        all_versions: Include models that only an older `auto` attacked; do not take means over
            several versions.

    Returns:
        One row per trained model and budget. The columns are those of `MODEL`; the accuracies of
        `SHOWN`, the lowest of each kind in 0..1, NaN if nothing was tried, and of `clean` that of
        the weights with the worst case; `transfers`, the accuracy of each transfer by its
        surrogates; `by`, the attack that reached the worst case; `flags`, codes of reasons not to
        read it as a bound; `seen`, true if an attack knew the model; `thorough`, true if `auto`
        did; `version`, the newest such `auto`, 0 if none or for the control; `worst_version`, the
        `auto` that reached the worst case, 0 for any other attack; `tried`, the number of seeds of
        all versions; `control`, true for an MLP with any settings; and `above_mlp`, the distance in
        points from the best control with the same seed and split.
    """
    trained: dict[tuple[Any, ...], dict[tuple[Any, ...], list[Any]]] = {}
    for row in results[results["accuracy"].notna()][[*MODEL, *_READ]].itertuples(index=False):
        alike = trained.setdefault(row[: len(_KEY)], {})
        alike.setdefault(row[: len(MODEL)], []).append(row)
    groups = [
        [dict(zip(MODEL, model, strict=True)) | _tried(rows) for model, rows in alike.items()]
        for alike in trained.values()
    ]
    line: dict[tuple[Any, ...], float] = {}
    for control in (model for group in groups for model in group if model["control"]):
        pair = _at(control, PAIRED)
        line[pair] = float(np.fmax(control["clean"], line.get(pair, math.nan)))
    groups = [_deepest(group, lambda model: model["seen"] + model["thorough"]) for group in groups]
    for models in groups:
        for model in models:
            model["tried"] = len({other["seed"] for other in models})
            model["above_mlp"] = 100 * (model["worst"] - line.get(_at(model, PAIRED), math.nan))
    if not all_versions:
        groups = [_deepest(group, itemgetter("version")) for group in groups]
    measured = [*SHOWN, "transfers", "by", "flags", "seen", "thorough", "version"]
    measured += ["worst_version"]
    columns = [*MODEL, *measured, "control", "tried", "above_mlp"]
    return pd.DataFrame([model for group in groups for model in group], columns=columns)


def _tried(rows: Sequence[Any]) -> dict[str, Any]:
    """Combine the rows of one trained model."""
    # Poisoning attacks other models: those that are trained on its graphs.
    attacked = [row for row in rows if row.attack != CLEAN and not row.retrained]
    seen = [row for row in attacked if any(getattr(row, kind) >= 0 for kind in SEEN)]
    version = max((int(row.version) for row in seen if row.attack in ENSEMBLES), default=0)
    kinds = ("chance", "transfer", *SEEN)
    lowest = {kind: _lowest(getattr(row, kind) for row in attacked) for kind in kinds}
    worst = _lowest(row.accuracy for row in attacked)
    at_worst = [row for row in attacked if row.accuracy == worst]
    transferred = [row for row in attacked if row.transfer >= 0]
    # `named_by_settings` may have renamed it.
    control = rows[0].record.model_name == CONTROL
    # Of the weights that reached it, since another machine may train others.
    runs = {row.record.run for row in at_worst or rows}
    clean = [row.accuracy for row in rows if row.attack == CLEAN and row.record.run in runs]
    reached = [(int(row.version) if row.attack in ENSEMBLES else 0, row.by) for row in at_worst]
    worst_version = 0 if control else max((found for found, _ in reached), default=0)
    by = min((name for found, name in reached if found >= worst_version), default="")
    if 0 < worst_version < version:
        by = by.replace(THOROUGH, f"{THOROUGH} {worst_version}", 1)
    flags: frozenset[str] = frozenset()
    if worst > 0:  # at 0, no attack could do more harm
        lowest_seen = _lowest(lowest[kind] for kind in SEEN)
        weaker = [kind for kind in ("chance", "transfer") if lowest[kind] < lowest_seen]
        flags = all_of([row.victim_flags for row in rows] + [row.flags for row in at_worst])
        flags |= {f"weaker_than_{kind}" for kind in weaker}
    return {
        "clean": _lowest(clean),
        **lowest,
        "worst": worst,
        "transfers": {
            name: _lowest(row.transfer for row in transferred if row.surrogates == name)
            for name in {row.surrogates for row in transferred}
        },
        "by": by,
        "worst_version": worst_version,
        "flags": flags,
        "seen": bool(seen),
        "thorough": version > 0,
        "version": 0 if control else version,
        "control": control,
    }


def _lowest(values: Iterable[float]) -> float:
    """Return the lowest of the present values, NaN without any."""
    return min((value for value in values if value >= 0), default=math.nan)


def _at(model: Mapping[Any, Any], columns: Iterable[str]) -> tuple[Any, ...]:
    return tuple(model[column] for column in columns)


def _deepest(
    models: Sequence[dict[str, Any]], depth: Callable[[Mapping[str, Any]], int]
) -> list[dict[str, Any]]:
    most = max(map(depth, models))
    return [model for model in models if depth(model) == most]


def lowest_within(models: pd.DataFrame) -> pd.DataFrame:
    """Replace the worst case in each row of `worst_cases` by the lowest within its budget.

    This includes the worst cases of all smaller budgets.

    Args:
        models: Result of `worst_cases`.
    """
    models = models.reset_index(drop=True)
    trained = ["dataset", "variant", "model", "seed", "split"]
    lowest = models.index.to_numpy().copy()
    for _, group in models.groupby([*trained, models["budget"].map(feature_limits)], sort=False):
        limits = group[["nodes", "edges"]].to_numpy(int)
        worst = group["worst"].fillna(math.inf).to_numpy()
        for i, within in enumerate(np.logical_and.reduce(limits[:, None] >= limits, axis=2)):
            least = np.flatnonzero(within)[worst[within].argmin()]
            if worst[least] < worst[i]:
                lowest[group.index[i]] = group.index[least]
    columns = ["worst", "above_mlp", "by", "flags", "worst_version"]
    return models.assign(**{name: models[name].to_numpy()[lowest] for name in columns})


@cache  # thousands of rows have the same few
def feature_limits(budget: Budget) -> Budget:
    """Return the limits except those of injected nodes and edges."""
    return replace(budget, max_injected_nodes=1, max_edges_per_injected_node=1)


def all_of(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    """Return the union of sets."""
    return frozenset().union(*sets)


def worst_case_table(models: pd.DataFrame) -> pd.DataFrame:
    """Tabulate clean accuracy, each kind of evidence, the worst case, and its distance to an MLP.

    Args:
        models: Result of `worst_cases`.

    Returns:
        One row per dataset, variant, budget and model, the highest above the MLP first. The columns
        are those of `_KEY`; the numbers of `seeds`, of seeds `tried`, and of `splits`; `version`;
        the columns of `SHOWN`, means in % over seeds and splits, NaN if nothing was tried; `fewer`,
        the number of models for each mean that does not include all of them; `surrogates` of the
        strongest transfer under the newest `auto`; `spread`, the standard deviation of the worst
        case; `above_mlp`, the mean over pairs with the same seed and split, in points; `thorough`,
        true if `auto` attacked the models themselves; `bound`, false if any flag was raised;
        `flags`; and `by`, the attack that most often reached the worst case, empty if none cost
        accuracy.
    """
    groups: dict[tuple[Any, ...], list[Mapping[Any, Any]]] = {}
    for model in models.to_dict("records"):
        groups.setdefault(_at(model, _KEY), []).append(model)
    rows = [dict(zip(_KEY, key, strict=True)) | _row(group) for key, group in groups.items()]
    if not rows:
        return pd.DataFrame()
    order = ["dataset", "variant", "edges", "nodes", "above_mlp", "model"]
    ascending = [column != "above_mlp" for column in order]
    return pd.DataFrame(rows).sort_values(order, ascending=ascending, ignore_index=True)


def _row(models: Sequence[Mapping[Any, Any]]) -> dict[str, Any]:
    flags = sorted(all_of(model["flags"] for model in models))
    surrogates = _strongest_surrogates([model["transfers"] for model in models])
    values = {kind: [100 * model[kind] for model in models] for kind in SHOWN}
    values["transfer"] = [100 * model["transfers"].get(surrogates, math.nan) for model in models]
    counts = {kind: sum(value >= 0 for value in column) for kind, column in values.items()}
    return {
        "seeds": len({model["seed"] for model in models}),
        "tried": models[0]["tried"],
        "splits": len({model["split"] for model in models}),
        "version": max(model["version"] for model in models),
        **{kind: mean_and_std(column)[0] for kind, column in values.items()},
        "fewer": {kind: count for kind, count in counts.items() if count < len(models)},
        "surrogates": surrogates,
        "spread": mean_and_std(values["worst"])[1],
        "above_mlp": mean_and_std(model["above_mlp"] for model in models)[0],
        "thorough": any(model["thorough"] for model in models),
        "bound": not flags,
        "flags": ", ".join(flags),
        "by": most_frequent(models),
    }


def _strongest_surrogates(transfers: Sequence[Mapping[str, float]]) -> str:
    """Return the surrogates under the newest `auto`; of several, those of most models.

    If these are several, too, those whose transfers leave least.
    """
    found: dict[str, list[float]] = {}
    for of_model in transfers:
        for name, accuracy in of_model.items():
            found.setdefault(name, []).append(accuracy)

    def order(name: str) -> tuple[str, int, float, str]:
        version = name.partition(f"; {THOROUGH} ")[2].zfill(3)
        return version, len(found[name]), -sum(found[name]), name

    return max(found, key=order, default="")


def most_frequent(models: Sequence[Mapping[Any, Any]]) -> str:
    """Return the attack that most often reached the worst case; "" if none cost accuracy."""
    hurt = Counter(model["by"] for model in models if model["worst"] < model["clean"])
    attack = max(sorted(hurt), key=hurt.__getitem__, default="")
    some = f", {hurt[attack]} of {len(models)}" if 0 < hurt[attack] < len(models) else ""
    return attack + some


def show_worst_cases(rows: pd.DataFrame) -> Table:
    """Return the worst cases of a sweep; a flagged model is marked as not a bound.

    Args:
        rows: Rows of `frame`, of any runs.
    """
    table = worst_case_table(worst_cases(named_by_settings(rows)))
    if table.empty:
        return Table("", table, "no finished run")
    headings = HEADINGS | ({} if table["nodes"].any() else {"chance": "random flips"})
    table["budget"] = named_budgets(table)
    keys = [*differing(table, ["dataset", "variant", "budget"]), "model"]
    draws = ["splits"] if table["splits"].max() > 1 else []
    fewer = table["seeds"] < table["tried"]
    table["seeds of"] = table["tried"].astype("Int64").where(fewer)
    shown = table[[*keys, "seeds", "seeds of", *draws]].copy()
    if fewer.any() or len({*table["version"]} - {0}) > 1:
        shown["auto"] = table["version"].astype("Int64").where(table["version"] > 0)
    for kind in (kind for kind in SHOWN[:-1] if table[kind].notna().any()):
        heading = headings.get(kind, kind)
        shown[heading] = table[kind]
        shown[f"{heading} n"] = [fewer.get(kind, 0) for fewer in table["fewer"]]
        if kind == "transfer" and table["surrogates"].any():
            shown["from"] = table["surrogates"]
    shown[["worst", "worst ±"]] = table[["worst", "spread"]]
    shown["worst !"] = ~table["bound"]
    if table["above_mlp"].notna().any():
        shown["above MLP"] = table["above_mlp"]
    shown["by"] = table["by"]
    flagged = zip(table["model"], table["flags"], strict=True)
    notes = [f"! {model}: not a bound: {flags}" for model, flags in flagged if flags]
    ensemble = THOROUGH if table["nodes"].any() else "auto_modification"
    codes = {code: None for flags in table["flags"] for code in flags.split(", ") if code}
    notes += [f"{code}: {remedy_of(code, ensemble)}" for code in codes]
    budgets = "" if "budget" in keys else f" within {table['budget'].iloc[0]}"
    datasets = ", ".join(table["dataset"].unique())
    caption = f"{datasets}: lowest accuracy in % that any attack reached{budgets}"
    return Table("", shown, "; ".join([caption, *describe_cuts(rows["record"])]), notes=notes)


def limits_in_words(budget: Budget) -> str:
    """Describe the limits of an injection, or of a modification if no node may be injected."""
    kind = "injected_nodes" if budget.max_injected_nodes else "changed_nodes"
    limits = describe_limits(ranges([budget.bounds]), [kind])
    return ", ".join(filter(None, [limits, budget.form]))


def named_budgets(rows: pd.DataFrame) -> "pd.Series[str]":
    """Describe the budget of each row, with all differing keys if descriptions would be equal.

    Descriptions are only compared within a dataset, since limits of features differ between
    datasets.
    """
    words = rows["budget"].map(limits_in_words)
    for _, alike in rows["budget"].groupby([rows["dataset"], words]):
        limits = [{key: str(value) for key, value in asdict(b).items()} for b in alike]
        keys = differing_keys(limits)
        words[alike.index] += [", ".join(["", *(f"{k}={own[k]}" for k in keys)]) for own in limits]
    return words


def differing(frame: pd.DataFrame, columns: Iterable[str]) -> list[str]:
    """Return the columns in which rows differ."""
    return differing_keys(frame[[*columns]].to_dict("records"))
