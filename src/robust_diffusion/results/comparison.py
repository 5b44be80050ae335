"""Effect of each option of a sweep: every setting beside the one it departs from."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from robust_diffusion.records.identity import PRESENTATION_KEYS
from robust_diffusion.records.records import Record, latest_by_cell
from robust_diffusion.results.cells import is_tested
from robust_diffusion.results.numbers import signed, spread
from robust_diffusion.results.significance import one_sample_p, starred

Overrides = Mapping[str, str]

NOT_COMPARED = PRESENTATION_KEYS | {"seed", "hydra", "trainer"}
"""Parts of an override that do not make another setting."""

KINDS = ("dataset", "model", "flow")
"""Overrides by which two settings are of different things rather than of different options."""

CHANGE = "change in "  # begins the name of each column of changes


@dataclass
class Setting:
    """One setting of a sweep."""

    overrides: Overrides  # typed or swept, the seed aside
    accuracy: dict[str, dict[int, float]] = field(default_factory=dict)  # per test graph and seed


def compare(
    records: Sequence[Record], experiment: str, *, scale: str = "full", on: str = "test"
) -> pd.DataFrame:
    """Accuracy of each setting in %, and its difference to the setting that it departs from.

    A setting departs from the one with the most of its overrides and none of its own: that with
    `fidelity=paper` and nothing else, for example, from which `fidelity.num_steps=1` departs. One
    of the same dataset, model and flow comes first.
    Differences are taken seed by seed, since settings of one seed share split, initial weights
    where their shapes agree, and attacked graphs. They are tested by Student's t-test of these
    differences; a star marks what is significant by Holm's method over the row. The accuracy is
    that `on` the `test` graphs, or on the clean graph's `validation` nodes.

    Returns:
        One row per setting, after that from which it departs; settings of one dataset, model and
        flow stand together, numbers ascending. Columns `setting`, `seeds` and, per test graph, the
        accuracy and `change in <graph>`; a setting that departs from none has no changes, and
        where all are such there are no columns of them. Empty without finished cells.
    """
    settings = _below_bases(_in_order(_settings(records, experiment, scale, on)))
    graphs = list(dict.fromkeys(graph for setting, _ in settings for graph in setting.accuracy))
    departs = any(base for _, base in settings)
    rows = []
    for setting, base in settings:
        row = {"setting": _named(setting, base)}
        row["seeds"] = str(max(len(values) for values in setting.accuracy.values()))
        changes = [_change(setting, base, graph) for graph in graphs]
        p_values = starred([one_sample_p(change, 0.0) for change in changes])
        for graph, change, p in zip(graphs, changes, p_values, strict=True):
            values = 100 * pd.Series(setting.accuracy.get(graph, {}), dtype=float)
            row[graph] = spread(values.mean(), values.std(), 2)
            if departs:
                text = signed(sum(change) / len(change), 2) if change else ""
                row[CHANGE + graph] = text if p == "-" else f"{text} (p {p})"
        rows.append(row)
    return pd.DataFrame(rows)


def _settings(records: Sequence[Record], experiment: str, scale: str, on: str) -> list[Setting]:
    latest = latest_by_cell(records)
    lines: dict[tuple[str, int], Record] = {}
    for line in records:
        if line.get("experiment") != experiment or line.get("scale", "full") != scale:
            continue
        # A line may be a reference to a cell that another experiment had run before.
        record = latest.get(line.get("cell", ""))
        if record is not None and is_tested(record):
            # Cells of one setting can differ in what has changed in `conf/`; the last ones count.
            name = repr(sorted(_compared(line, record).items()))
            lines[name, record["seed"]] = line
    settings: dict[str, Setting] = {}
    # Cells that run side by side are recorded as they finish.
    for (name, seed), line in sorted(lines.items(), key=lambda item: item[1].get("job", 0)):
        record = latest[line["cell"]]
        setting = settings.setdefault(name, Setting(_compared(line, record)))
        found = record["accuracy"] if on == "test" else {on: record["val_accuracy"]}
        for graph, accuracy in found.items():
            setting.accuracy.setdefault(graph, {})[seed] = accuracy
    return _told_apart(list(settings.values()))


def _compared(line: Record, record: Record) -> dict[str, str]:
    """Overrides of a line without what makes no other setting, or what its cell does not read."""
    parts = {key: key.split(".")[0].split("/")[0] for key in line.get("overrides", {})}
    return {
        key: line["overrides"][key]
        for key, part in parts.items()
        # A flow or solver that the model does not read is `None` in its record.
        if part not in NOT_COMPARED and record.get(part, "") is not None
    }


def _told_apart(settings: list[Setting]) -> list[Setting]:
    """The settings without the overrides that all of them share."""
    if len(settings) > 1:
        common = set.intersection(*(set(setting.overrides.items()) for setting in settings))
        for setting in settings:
            setting.overrides = dict(i for i in setting.overrides.items() if i not in common)
    return settings


def _base(setting: Setting, settings: Sequence[Setting]) -> Setting | None:
    own = setting.overrides.items()
    found = [other for other in settings if other.overrides.items() < own]

    def nearness(other: Setting) -> tuple[int, int]:
        alike = [setting.overrides.get(key) == other.overrides.get(key) for key in KINDS]
        return sum(alike), len(other.overrides)

    return max(found, key=nearness, default=None)


def describe_comparison(frame: pd.DataFrame, *, on: str = "test") -> str:
    """A sentence on the numbers that `compare` gave with this `on`."""
    nodes = {"test": "on the test graphs", "validation": "on clean validation nodes"}[on]
    changed = any(column.startswith(CHANGE) for column in frame.columns)
    changes = (
        "; changes are means of the differences seed by seed, p of a paired t-test, starred where "
        "significant at 5 % by Holm's method over the row; by chance, one row in twenty has a star"
    )
    return f"Accuracy in %, {nodes}{changes if changed else ''}."


def _in_order(settings: Sequence[Setting]) -> list[Setting]:
    """Settings of one dataset, model and flow together, of the same options by their values.

    Numbers ascend, all else is as it was first run. A sweep that several processes share, or that
    was taken up again, is not recorded in its own order.
    """
    first: dict[tuple[str, object], int] = {}

    def met(what: str, value: object) -> int:
        return first.setdefault((what, value), len(first))

    def place(key: str, value: str) -> tuple[int, float]:
        try:
            return 0, float(value)
        except ValueError:
            return 1, met(key, value)

    def places(setting: Setting) -> tuple[list[int], int, list[tuple[int, float]]]:
        kinds = [met(kind, setting.overrides.get(kind)) for kind in KINDS]
        options = sorted(setting.overrides.keys() - set(KINDS))
        values = [place(option, setting.overrides[option]) for option in options]
        return kinds, met("options", tuple(options)), values

    return sorted(settings, key=places)


def _below_bases(settings: Sequence[Setting]) -> list[tuple[Setting, Setting | None]]:
    """Each setting, with that from which it departs, below which it stands."""
    bases = [(setting, _base(setting, settings)) for setting in settings]

    def below(base: Setting | None) -> list[tuple[Setting, Setting | None]]:
        own = [pair for pair in bases if pair[1] is base]
        return [found for pair in own for found in (pair, *below(pair[0]))]

    return below(None)


def _change(setting: Setting, base: Setting | None, graph: str) -> list[float]:
    """Differences of accuracies on a graph, in points, of the seeds that both have."""
    values, of_base = (of.accuracy.get(graph, {}) if of else {} for of in (setting, base))
    shared = sorted(values.keys() & of_base.keys())
    # Equal differences of floats are not quite equal, and would look like a spread of 1e-14.
    return [round(100 * (values[seed] - of_base[seed]), 9) for seed in shared]


def _named(setting: Setting, base: Setting | None) -> str:
    """Options of its own, without names of groups and classes that would only lengthen it."""
    known = {} if base is None else base.overrides
    own = {key: value for key, value in setting.overrides.items() if key not in known}
    named = ", ".join(
        f"{key.rpartition('.')[2]}={re.sub(r'_target_:[^,}]*,?', '', value)}"
        for key, value in own.items()
    )
    shared = ", ".join(f"{key}={value}" for key, value in known.items())
    return ": ".join(filter(None, [shared, named])) or "(baseline)"
