"""Comparisons between settings of a sweep, and pairs of models."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import pandas as pd

from robust_diffusion.records.identity import PRESENTATION_KEYS
from robust_diffusion.records.record import CLEAN, Record
from robust_diffusion.results.captions import describe_cuts
from robust_diffusion.results.evidence import THOROUGH
from robust_diffusion.results.frame import named_by_settings, narrow_frame
from robust_diffusion.results.table import ResultTable, rank, summarize
from robust_diffusion.results.worst_case import (
    PAIRED,
    all_of,
    differing,
    named_budgets,
    show_worst_cases,
    worst_cases,
)
from robust_diffusion.system.numbers import (
    LEVEL,
    Estimate,
    mean_and_std,
    signed,
    spread,
    starred,
)

Setting = Mapping[str, str]
"""Overrides, typed or swept, without the seed."""

NOT_COMPARED = PRESENTATION_KEYS | {"seed", "hydra", "trainer"}
"""Parts of an override that do not define a setting."""

TESTED_ON = ("dataset", "difficulty")
"""Keys of a record that select the test nodes."""

KINDS = ("dataset", "model", "flow")
"""Overrides that select what is tested, in contrast to its options."""

_NAMES = ["dataset", "variant", "budget"]
"""Columns of a comparison of two models that are only shown if rows differ in them."""

CHANGE = "change in "  # prefix of the columns of changes


def compare(runs: Sequence[Record], *, on: str = "test") -> pd.DataFrame:
    """Tabulate the accuracy of each setting in %, and its difference from its base setting.

    The base of a setting is the other setting with the same test nodes that shares most of its
    overrides and has no further ones, preferably with the same model and flow. For example,
    `fidelity=paper` is the base of `fidelity=paper fidelity.num_steps=1`.

    Differences are taken seed by seed, since settings with the same seed share the split, initial
    weights of equal shape, and attacked graphs. They are tested by Student's t-test; a star marks
    differences that are significant by Holm's method over the row.

    Args:
        runs: Runs of one experiment, as returned by `by_experiment`.
        on: `test` for accuracies on the test graphs, `validation` for those on the clean graph's
            validation nodes.

    Returns:
        One row per setting, after its base. Settings of the same dataset, model and flow are
        grouped, with ascending numbers. The columns are `setting`, `seeds` and, per test graph, the
        accuracy and `change in <graph>`. A setting without a base has no changes, and if no setting
        has a base there are no such columns. The frame is empty without finished runs.
    """
    # Runs of one setting can differ if `conf/` has changed; the last ones count.
    latest: dict[tuple[frozenset[tuple[str, str]], int], Record] = {
        (frozenset(_compared(run).items()), run.seed): run
        for run in {run.run: run for run in runs if run.is_tested}.values()
    }
    ordered = list(latest.items())
    typed = {name: _compared(run) for (name, _), run in reversed(ordered)}
    names = list(dict.fromkeys(name for (name, _), _ in ordered))
    shared = frozenset.intersection(*names) if len(names) > 1 else frozenset()
    settings = [dict(item for item in typed[name].items() if item not in shared) for name in names]
    rows = narrow_frame(run for _, run in ordered)
    if on == "validation":
        rows = rows[rows["attack"] == CLEAN].assign(attack=on, accuracy=rows["validation"])
    rows["setting"] = rows["run"].map({run.run: names.index(name) for (name, _), run in ordered})
    accuracy = {
        setting: alike.pivot_table("accuracy", "draw", "attack")
        for setting, alike in rows.groupby("setting")
    }
    order = _in_order(settings)
    graphs = rows.set_index("setting")["attack"].loc[order].unique()
    bases = {i: _base(i, settings, order) for i in order}
    departs = any(base is not None for base in bases.values())
    lines = []
    for i in _below(None, bases):
        scores, base = accuracy[i].reindex(columns=graphs), bases[i]
        before = scores[:0] if base is None else accuracy[base]
        row = {"setting": _named(settings[i], {} if base is None else settings[base])}
        row["seeds"] = str(len(scores))
        # Rounded, since rounding errors of equal differences would look like a spread of 1e-14.
        differences = (100 * (scores - before)).round(9)
        changes = {graph: list(differences[graph].dropna()) for graph in graphs}
        p_values = starred([Estimate.of(x).p() if x else None for x in changes.values()])
        for (graph, change), p in zip(changes.items(), p_values, strict=True):
            row[graph] = spread(*mean_and_std(100 * scores[graph]), 2)
            if departs:
                text = signed(mean_and_std(change)[0], 2) if change else ""
                row[CHANGE + graph] = text if p == "-" else f"{text} (p {p})"
        lines.append(row)
    return pd.DataFrame(lines)


def _compared(run: Record) -> Setting:
    """Return the overrides that define a run's setting."""
    parts = {key: key.split(".")[0].split("/")[0] for key in run.overrides}
    typed = {
        key: run.overrides[key]
        for key, part in parts.items()
        if part not in NOT_COMPARED and run.reads(part)
    }
    # Typed or not, since accuracies on different nodes are not subtracted.
    return typed | {
        key: str(getattr(run, key)) for key in TESTED_ON if getattr(run, key) is not None
    }


def _base(index: int, settings: Sequence[Setting], order: Sequence[int]) -> int | None:
    """Return the index of the base of a setting; `None` if there is none."""
    setting = settings[index]

    def nearness(other: int) -> tuple[int, int]:
        alike = [setting.get(key) == settings[other].get(key) for key in KINDS]
        return sum(alike), len(settings[other])

    fewer = [other for other in order if settings[other].items() < setting.items()]
    return max(fewer, key=nearness, default=None)


def _below(base: int | None, bases: Mapping[int, int | None]) -> list[int]:
    """Return all settings below a base, each before its own descendants."""
    children = [i for i, parent in bases.items() if parent == base]
    return [index for i in children for index in (i, *_below(i, bases))]


def show_comparison(runs: Sequence[Record], *, on: str = "test") -> ResultTable:
    """Format the result of `compare`, with a title that explains its numbers."""
    frame = compare(runs, on=on)
    nodes = {"test": "on the test graphs", "validation": "on clean validation nodes"}[on]
    changes = (
        "; changes are means of the differences seed by seed, p of a paired t-test, starred where "
        "significant at 5 % by Holm's method over the row; by chance, one row in twenty has a star"
    )
    changed = any(column.startswith(CHANGE) for column in frame.columns)
    return ResultTable(f"Accuracy in %, {nodes}{changes * changed}", frame, ["setting"], [])


def _in_order(settings: Sequence[Setting]) -> list[int]:
    """Sort settings by dataset, model and flow, then by options, then by their values.

    Numbers ascend; everything else is in the order of the first run. Records need not be in the
    order of the sweep if it was parallel or resumed.
    """
    first: dict[tuple[str, object], int] = {}

    def met(what: str, value: object) -> int:
        return first.setdefault((what, value), len(first))

    def place(option: str, value: str) -> tuple[int, float]:
        with suppress(ValueError):
            return 0, float(value)
        return 1, met(option, value)

    def places(index: int) -> tuple[list[int], int, list[tuple[int, float]]]:
        setting = settings[index]
        kinds = [met(kind, setting.get(kind)) for kind in KINDS]
        options = sorted(setting.keys() - set(KINDS))
        return kinds, met("options", tuple(options)), [place(o, setting[o]) for o in options]

    return sorted(range(len(settings)), key=places)


def _named(setting: Setting, known: Setting) -> str:
    """Name the options beyond the known ones, without redundant names of groups and classes."""
    options = {key: value for key, value in setting.items() if key not in known}
    named = ", ".join(
        f"{key.rpartition('.')[2]}={re.sub(r'_target_:[^,}]*,?', '', value)}"
        for key, value in options.items()
    )
    shared = ", ".join(f"{key}={value}" for key, value in known.items())
    return ": ".join(filter(None, [shared, named])) or "(baseline)"


def compare_worst_cases(rows: pd.DataFrame, first: str, second: str) -> ResultTable:
    """Compare two models on the clean graph, under transferred attacks, and in the worst case.

    Differences are taken between models with the same seed and split. Their mean is tested by
    Student's t-test; a star marks differences that are significant by Holm's method over the table.

    Args:
        rows: Rows of `frame`, under any threat models.
        first: Name of a model or flow, from whose accuracy the other one is subtracted.
        second: Name of the other model or flow.

    Returns:
        One row per kind of accuracy and per dataset, variant and budget that both models have in
        common; no rows if they have no seed in common. If either model was attacked by several
        versions of `auto`, the worst case has a row per version. A worst case is marked if it is
        not a bound on one of these seeds.
    """
    models = worst_cases(named_by_settings(rows), all_versions=True)
    sides = [models[models["model"] == name] for name in (first, second)]
    both = sides[0].merge(sides[1], on=PAIRED, suffixes=("", " of other"))
    both = both.sort_values(["dataset", "variant", "edges", "nodes"], kind="stable")
    both["limits"] = named_budgets(both)
    lines, changes, notes = [], [], []
    for _, of_both in both.groupby(_NAMES, sort=False):
        dataset, variant, limits = of_both.iloc[0][["dataset", "variant", "limits"]]
        named = {"dataset": dataset, "variant": variant, "budget": limits}
        flags = {
            first: sorted(all_of(of_both["flags"])),
            second: sorted(all_of(of_both["flags of other"])),
        }
        by_seed = of_both.sort_values(["draw", "split"]).to_dict("records")
        for kind, pairs in _accuracies(by_seed).items():
            changes.append([round(a - b, 9) for a, b in pairs])
            means = {
                name: spread(*mean_and_std(values), 2)
                + (" !" if kind.startswith("worst") and flags[name] else "")
                for name, values in zip((first, second), zip(*pairs, strict=True), strict=True)
            }
            lines.append({**named, "accuracy": kind, "seeds": len(pairs), **means})
        notes += [
            f"! {name}, {dataset}, {variant}: not a bound: {', '.join(codes)}"
            for name, codes in flags.items()
            if codes
        ]
    cells = pd.DataFrame(lines, columns=None if lines else ["accuracy"])
    if not lines:
        return ResultTable(f"no seed of both {first} and {second}", cells, ["accuracy"], [])
    estimates = [Estimate.of(change) for change in changes]
    cells["difference"] = [signed(estimate.effect, 2) for estimate in estimates]
    cells[f"{100 * LEVEL:.0f} % interval"] = [
        " to ".join(signed(end, 2) for end in estimate.interval) if estimate.error else "-"
        for estimate in estimates
    ]
    cells["p"] = starred([estimate.p() for estimate in estimates])
    cells["by seed"] = [", ".join(signed(d, 2) for d in change) for change in changes]
    columns = differing(cells, _NAMES)
    within = "" if "budget" in columns else f" within {cells['budget'].iloc[0]}"
    title = (
        f"{', '.join(cells['dataset'].unique())}: {first} beside {second}, accuracy in %{within}; "
        "differences in points, seed by seed, p of a paired t-test, starred where significant at "
        "5 % by Holm's method over the table"
    )
    shown = cells.drop(columns=[name for name in _NAMES if name not in columns])
    title = "; ".join([title, *describe_cuts(rows["record"])])
    return ResultTable(title, shown, [*columns, "accuracy", "by seed"], notes)


def _accuracies(pairs: Sequence[Mapping[Any, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Return pairs of accuracies in % by kind, for the seeds on which both models have one."""
    kinds = {"clean": [(pair["clean"], pair["clean of other"]) for pair in pairs]}
    transfers = [(pair["transfers"], pair["transfers of other"]) for pair in pairs]
    shared = [{name for tried in side for name in tried} for side in zip(*transfers, strict=True)]
    for name in sorted(set.intersection(*shared)):
        kind = f"transfer from {name}" if name else "transfer"
        kinds[kind] = [(a.get(name, math.nan), b.get(name, math.nan)) for a, b in transfers]
    sides = ("", " of other")
    versions = [
        tuple(dict.fromkeys(row[f"version{x}"] for x in sides if not row[f"control{x}"]))
        for row in pairs
    ]
    several = len({*chain(*versions)}) > 1
    for version in sorted(set(versions), reverse=True):
        named = " and ".join(str(v or "none") for v in version)
        kind = f"worst, {THOROUGH} {named}" if several else "worst"
        alike = (pair for pair, v in zip(pairs, versions, strict=True) if v == version)
        kinds[kind] = [(pair["worst"], pair["worst of other"]) for pair in alike]
    known = {k: [(100 * a, 100 * b) for a, b in ab if a >= 0 and b >= 0] for k, ab in kinds.items()}
    return {kind: values for kind, values in known.items() if values}


SHOWS: Mapping[str, Callable[[Sequence[Record]], ResultTable]] = {
    "test": summarize,
    "validation": rank,
    "changes": show_comparison,
    "validation_changes": partial(show_comparison, on="validation"),
    "worst_case": lambda records: show_worst_cases(narrow_frame(records)),
}
"""Tables of an experiment's runs, by the names in `hydra.callbacks.results.shows`."""
