"""Comparisons between settings of a sweep, and pairs of models."""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import pandas as pd

from robust_diffusion.records.identity import PRESENTATION_KEYS
from robust_diffusion.records.record import CLEAN, Record
from robust_diffusion.results.budgets import describe_cuts
from robust_diffusion.results.evidence import THOROUGH
from robust_diffusion.results.frame import named_by_settings, narrow_frame
from robust_diffusion.results.show import Table
from robust_diffusion.results.worst_case import (
    PAIRED,
    all_of,
    differing,
    named_budgets,
    worst_cases,
)
from robust_diffusion.system.numbers import (
    LEVEL,
    Estimate,
    mean_and_std,
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
INTERVAL = f"{100 * LEVEL:.0f} % interval"


def compare_settings(runs: Sequence[Record], *, on: str = "test") -> Table:
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
        has a base there are no such columns. There are no rows without finished runs.
    """
    # Runs of one setting can differ if `conf/` has changed; the last ones count.
    latest: dict[tuple[frozenset[tuple[str, str]], int], Record] = {
        (frozenset(_compared(run).items()), run.seed): run
        for run in {run.run: run for run in runs if run.is_tested}.values()
    }
    typed = {name: _compared(run) for (name, _), run in reversed(latest.items())}
    names = list(dict.fromkeys(name for name, _ in latest))
    shared = frozenset.intersection(*names) if len(names) > 1 else frozenset()
    settings = [dict(item for item in typed[name].items() if item not in shared) for name in names]
    order = _in_order(settings)
    bases = {i: _base(i, settings, order) for i in order}
    rows = narrow_frame(latest.values())
    if on == "validation":
        rows = rows[rows["attack"] == CLEAN].assign(attack=on, accuracy=rows["validation"])
    rows["setting"] = rows["run"].map({r.run: names.index(name) for (name, _), r in latest.items()})
    samples = {
        key: dict(100 * alike.set_index("seed")["accuracy"])
        for key, alike in rows.groupby(["setting", "attack"])
    }
    graphs = rows.set_index("setting")["attack"].loc[order].unique()
    departs, lines = any(base is not None for base in bases.values()), []
    for i in _below(None, bases):
        base = bases[i]
        named = _named(settings[i], {} if base is None else settings[base])
        line: dict[str, Any] = {"setting": named}
        line["seeds"] = rows.loc[rows["setting"] == i, "seed"].nunique()
        scores = {graph: samples.get((i, graph), {}) for graph in graphs}
        changes = {g: _change(of, samples.get((base, g), {})) for g, of in scores.items()}
        p_values = [Estimate.of(change).p() if change else None for change in changes.values()]
        for graph, p, star in zip(graphs, p_values, starred(p_values), strict=True):
            line[graph], line[f"{graph} ±"] = mean_and_std(scores[graph].values())
            if departs:
                change = f"{CHANGE}{graph}"
                line[change] = mean_and_std(changes[graph])[0]
                line |= {f"{change} p": p, f"{change} *": star}
        lines.append(line)
    explained = (
        "; changes are means of the differences seed by seed, p of a paired t-test, starred where "
        "significant at 5 % by Holm's method over the row; by chance, one row in twenty has a star"
    )
    formats = {CHANGE + graph: "{:+.2f}" for graph in graphs}
    nodes = {"test": "on the test graphs", "validation": "on clean validation nodes"}[on]
    caption = f"Accuracy in %, {nodes}{explained * departs}"
    return Table("", pd.DataFrame(lines), caption, formats=formats)


def _change(scores: Mapping[int, float], before: Mapping[int, float]) -> list[float]:
    """Return the differences of the shared seeds."""
    # Rounded, since rounding errors of equal differences would look like a spread of 1e-14.
    return [round(scores[seed] - before[seed], 9) for seed in scores if seed in before]


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


def compare_worst_cases(rows: pd.DataFrame, first: str, second: str) -> Table:
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
    lines, notes = list[dict[str, Any]](), []
    for names, of_both in both.groupby(["dataset", "variant", "limits"], sort=False):
        flags = {
            first: sorted(all_of(of_both["flags"])),
            second: sorted(all_of(of_both["flags of other"])),
        }
        by_seed = of_both.sort_values(["seed", "split"]).to_dict("records")
        for kind, pairs in _accuracies(by_seed).items():
            line = dict(zip(_NAMES, names, strict=True)) | {"accuracy": kind, "seeds": len(pairs)}
            for name, values in zip((first, second), zip(*pairs, strict=True), strict=True):
                line[name], line[f"{name} ±"] = mean_and_std(values)
                line[f"{name} !"] = kind.startswith("worst") and bool(flags[name])
            lines.append(line | _difference([round(a - b, 9) for a, b in pairs]))
        notes += [
            f"! {name}, {', '.join(map(str, names[:2]))}: not a bound: {', '.join(codes)}"
            for name, codes in flags.items()
            if codes
        ]
    cells = pd.DataFrame(lines)
    if not lines:
        return Table("", cells, f"no seed of both {first} and {second}")
    cells["p *"] = starred([*cells["p"]])
    columns = differing(cells, _NAMES)
    within = "" if "budget" in columns else f" within {cells['budget'].iloc[0]}"
    caption = (
        f"{', '.join(cells['dataset'].unique())}: {first} beside {second}, accuracy in %{within}; "
        "differences in points, seed by seed, p of a paired t-test, starred where significant at "
        "5 % by Holm's method over the table"
    )
    shown = [*columns, *cells.columns.drop([*_NAMES, "by seed", "p *"]), "p *", "by seed"]
    caption = "; ".join([caption, *describe_cuts(rows["record"])])
    formats = {"p": "p"} | dict.fromkeys(["difference", INTERVAL, "by seed"], "{:+.2f}")
    return Table("", cells[shown], caption, notes=notes, formats=formats)


def _difference(by_seed: Sequence[float]) -> dict[str, Any]:
    """Return the mean of differences, its interval, and its test."""
    estimate = Estimate.of(by_seed)
    low, high = estimate.interval if estimate.error else (math.nan, math.nan)
    ends = {INTERVAL: low, f"{INTERVAL} to": high}
    return {"difference": estimate.effect, **ends, "p": estimate.p(), "by seed": tuple(by_seed)}


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
