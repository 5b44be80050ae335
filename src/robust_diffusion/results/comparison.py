"""Effect of each option of a sweep: every setting compared with the one it departs from."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain

import pandas as pd

from robust_diffusion.records.identity import PRESENTATION_KEYS
from robust_diffusion.records.records import Record, first_asked, is_tested
from robust_diffusion.results.numbers import mean_and_std, one_sample_p, signed, spread, starred
from robust_diffusion.results.table import ResultTable

Setting = Mapping[str, str]
"""Overrides, typed or swept, the seed aside."""

Accuracies = dict[str, dict[int, float]]
"""Accuracy in 0..1 by graph and seed."""

NOT_COMPARED = PRESENTATION_KEYS | {"seed", "hydra", "trainer"}
"""Parts of an override that do not make another setting."""

KINDS = ("dataset", "model", "flow")
"""Overrides by which two settings are of different things rather than of different options."""

CHANGE = "change in "  # begins the name of each column of changes


def compare(runs: Sequence[Record], *, on: str = "test") -> pd.DataFrame:
    """Accuracy of each setting in %, and its difference to the setting that it departs from.

    A setting departs from the one with the most of its overrides and none of its own: that with
    `fidelity=paper` and nothing else, for example, from which `fidelity.num_steps=1` departs. One
    of the same dataset, model and flow comes first.
    Differences are taken seed by seed, since settings of one seed share split, initial weights
    where their shapes agree, and attacked graphs. They are tested by Student's t-test of these
    differences; a star marks what is significant by Holm's method over the row. The accuracy is
    that `on` the `test` graphs, or on the clean graph's `validation` nodes.

    Args:
        runs: Of one experiment, as `by_experiment` returns them.
        on: `test` or `validation`.

    Returns:
        One row per setting, after that from which it departs; settings of one dataset, model and
        flow stand together, numbers ascending. Columns `setting`, `seeds` and, per test graph, the
        accuracy and `change in <graph>`; a setting that departs from none has no changes, and
        where all are such there are no columns of them. Empty without finished runs.
    """
    settings, accuracy = _results(runs, on)
    order = _in_order(settings)
    graphs = list(dict.fromkeys(graph for i in order for graph in accuracy[i]))
    bases = {i: _base(i, settings, order) for i in order}
    departs = any(base is not None for base in bases.values())
    rows = []
    for i in _below(None, bases):
        scores, base = accuracy[i], bases[i]
        known, before = ({}, {}) if base is None else (settings[base], accuracy[base])
        row = {"setting": _named(settings[i], known), "seeds": str(len({*chain(*scores.values())}))}
        # Equal differences of floats are not quite equal, and would look like a spread of 1e-14.
        changes = {
            graph: [
                round((reached - before[graph][seed]) * 100, 9)
                for seed, reached in sorted(scores.get(graph, {}).items())
                if seed in before.get(graph, {})
            ]
            for graph in graphs
        }
        p_values = starred([one_sample_p(change, 0.0) for change in changes.values()])
        for (graph, change), p in zip(changes.items(), p_values, strict=True):
            row[graph] = spread(*mean_and_std(100 * x for x in scores.get(graph, {}).values()), 2)
            if departs:
                text = signed(sum(change) / len(change), 2) if change else ""
                row[CHANGE + graph] = text if p == "-" else f"{text} (p {p})"
        rows.append(row)
    return pd.DataFrame(rows)


def _results(runs: Sequence[Record], on: str) -> tuple[list[Setting], list[Accuracies]]:
    """Return the settings without the overrides that all share, and the accuracies of each."""
    # Runs of one setting can differ in what has changed in `conf/`; the last ones count.
    chosen = {
        (frozenset(_compared(run).items()), run["seed"]): run
        for run in first_asked(filter(is_tested, runs))
    }
    accuracy: dict[frozenset[tuple[str, str]], Accuracies] = {}
    settings: dict[frozenset[tuple[str, str]], Setting] = {}
    # Parallel runs are recorded as they finish.
    for (name, seed), run in sorted(chosen.items(), key=lambda item: item[1].get("job", 0)):
        settings.setdefault(name, {k: v for k, v in run["overrides"].items() if (k, v) in name})
        reached = {on: run["val_accuracy"]} if on == "validation" else run["accuracy"]
        for graph, value in reached.items():
            accuracy.setdefault(name, {}).setdefault(graph, {})[seed] = value
    shared = frozenset.intersection(*settings) if len(settings) > 1 else frozenset()
    own: list[Setting] = [
        {key: value for key, value in setting.items() if (key, value) not in shared}
        for setting in settings.values()
    ]
    return own, list(accuracy.values())


def _compared(run: Record) -> Setting:
    """Return the overrides that define a run's setting."""
    parts = {key: key.split(".")[0].split("/")[0] for key in run["overrides"]}
    return {
        key: run["overrides"][key]
        for key, part in parts.items()
        # A flow or solver that the model does not read is `None` in its record.
        if part not in NOT_COMPARED and run.get(part, "") is not None
    }


def _base(index: int, settings: Sequence[Setting], order: Sequence[int]) -> int | None:
    """Return the index of the setting that one departs from."""
    setting = settings[index]

    def nearness(other: int) -> tuple[int, int]:
        alike = [setting.get(key) == settings[other].get(key) for key in KINDS]
        return sum(alike), len(settings[other])

    fewer = [other for other in order if settings[other].items() < setting.items()]
    return max(fewer, key=nearness, default=None)


def _below(base: int | None, bases: Mapping[int, int | None]) -> list[int]:
    """Return the settings that depart from one, each before those that depart from it."""
    children = [i for i, parent in bases.items() if parent == base]
    return [index for i in children for index in (i, *_below(i, bases))]


def show_comparison(runs: Sequence[Record], *, on: str = "test") -> ResultTable:
    """Format what `compare` returns, titled by a sentence on its numbers."""
    frame = compare(runs, on=on)
    nodes = {"test": "on the test graphs", "validation": "on clean validation nodes"}[on]
    changes = (
        "; changes are means of the differences seed by seed, p of a paired t-test, starred where "
        "significant at 5 % by Holm's method over the row; by chance, one row in twenty has a star"
    )
    changed = any(column.startswith(CHANGE) for column in frame.columns)
    return ResultTable(f"Accuracy in %, {nodes}{changes * changed}", frame, ["setting"], [])


def _in_order(settings: Sequence[Setting]) -> list[int]:
    """Settings of one dataset, model and flow together, of the same options by their values.

    Numbers ascend, all else is as it was first run. A sweep that several processes share, or that
    was taken up again, is not recorded in its own order.
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
