"""Views: the runs that a table has in its rows and columns, and the numbers of its cells."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pandas as pd

from robust_diffusion.records.identity import same_configuration, settings_of
from robust_diffusion.records.record import CLEAN
from robust_diffusion.results.marks import Mark, marks_of, stronger_attacks
from robust_diffusion.system.numbers import Estimate, mean_and_std

Value = Literal["accuracy", "validation", "seconds", "nfe", "epochs"]
Best = Literal["row", "column", "none"]
Key = tuple[Any, ...]

UNITS: Mapping[Value, float] = {
    "accuracy": 100,
    "validation": 100,
    "seconds": 1e3,
    "nfe": 1,
    "epochs": 1,
}
"""Columns of a frame that a view can show -> their factor: accuracies in %, times in ms."""

OPEN = frozenset(["dataset", "attack", "model"])
"""Columns of a frame whose values a table shows even if nothing is printed for them."""

ROUNDING = 0.005
"""Half of the last printed digit of an accuracy, in %."""

ASSUMED_RUNS = 5
"""Runs behind a printed mean and deviation; the paper says 5 to 10, so this is the cautious end."""

_SELECTED = ["attack", "seed", "error", "record"]
_READ = [*_SELECTED, "run", *UNITS, "error_kind", "code", "threat", "budget", "spent", "clean"]
_READ += ["timing"]
_PRINTED = ["printed_mean", "printed_std"]


class _Selection(NamedTuple):
    runs: Sequence[Any]  # finished ones, by seed
    failures: Sequence[Any]  # for seeds without a finished run
    left_out: int  # number of runs with other settings


@dataclass(frozen=True)
class View:
    """Rows and columns of a table, by columns of a frame, and the number in its cells."""

    rows: Sequence[str]
    columns: Sequence[str]
    select: Mapping[str, Any] = field(default_factory=dict)  # column of the frame -> its value
    value: Value = "accuracy"
    printed: pd.DataFrame = field(default_factory=pd.DataFrame)  # published `mean` and `std`
    best: Best = "none"  # whether the best cells of each row or column are marked
    headings: Sequence[str] = ()  # of the columns that name the rows
    label: Callable[[str, Any], str] = lambda axis, value: str(value)  # text of a column's value
    grouped: bool = True  # whether adjacent rows with the same first values are a block
    decimals: int = 2

    @property
    def axes(self) -> list[str]:
        """Columns of the frame that rows and columns show."""
        return [*self.rows, *self.columns]

    def texts(self, cell: Mapping[Any, Any]) -> tuple[list[str], list[str]]:
        """Return the texts of a cell's row and column."""
        return (
            [self.label(axis, cell[axis]) for axis in self.rows],
            [self.label(axis, cell[axis]) for axis in self.columns],
        )


def cells(frame: pd.DataFrame, view: View, others: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return one row per cell: each row of the table with each of its columns.

    If runs of a cell differ in other settings than the seed, such as a shortened trial run, only
    the settings that were requested last count, so that no mean is taken over different settings.
    A table has the rows and columns of its printed numbers, then those of other datasets, attacks
    and models.

    Args:
        frame: Rows of `frame`, in the order in which they were requested.
        view: What to show.
        others: Rows of `frame` among which to look for stronger attacks on the same models.

    Returns:
        The columns of the view, then `graph`, the test graph; `state`, that is `measured`, or
        `failed`, `no data` or `not run`; `index`, the labels of the frame's rows, one per seed;
        `seeds`, `values`, `n`, `mean` and `std` over them; `q1` and `q3` of times; `failed`, the
        number of further seeds that failed; `marks`; `printed_mean` and
        `printed_std`; `difference`, `deviations`, `factor`, `p` and `test` against the printed
        number; and `rank`. Accuracies are in %, times in ms.
    """
    groups, printed = _groups(frame, view), _printed(view)
    cut = len(view.rows)
    rows = _lines([k[:cut] for k in printed], [k[:cut] for k in groups], view.rows)
    columns = _lines([k[cut:] for k in printed], [k[cut:] for k in groups], view.columns)
    lines = []
    for key in (row + column for row in rows for column in columns):
        number = printed.get(key, {})
        line = dict(zip(view.axes, key, strict=True))
        selected = _selected(groups.get(key, []), view.value)
        graph = line.get("attack") or number.get("attack") or CLEAN
        line |= {"graph": graph} | _measured(selected, view.value)
        marks = [*marks_of(*selected, number)]
        if others is not None:
            marks += stronger_attacks(selected.runs, others)
        line |= {"marks": marks} | {name: number.get(name) for name in _PRINTED}
        lines.append(line | compared(line, view.value))
    most = max((line["n"] for line in lines), default=0)
    for line in lines:
        if 0 < line["n"] < most:
            line["marks"].append(Mark("seeds", f"{line['n']} of {most} seeds"))
    return ranked(pd.DataFrame(lines), view)


def replicates(frame: pd.DataFrame, view: View) -> dict[Key, dict[int, float]]:
    """Return the values of each cell with runs, by seed."""
    unit, by_key = UNITS[view.value], {}
    for key, rows in _groups(frame, view, [*_SELECTED, view.value]).items():
        if runs := _selected(rows, view.value).runs:
            by_key[key] = {run.seed: unit * getattr(run, view.value) for run in runs}
    return by_key


def _groups(
    frame: pd.DataFrame, view: View, columns: Sequence[str] = _READ
) -> dict[Key, list[Any]]:
    """Return the rows of the frame that belong to each cell, with some of their columns."""
    timed = frame["timing"].notna()
    rows = frame[timed if view.value == "seconds" else ~timed]
    for column, wanted in view.select.items():
        rows = rows[rows[column].isin(wanted if isinstance(wanted, list) else [wanted])]
    groups: dict[Key, list[Any]] = {}
    keys = rows[view.axes].itertuples(index=False, name=None)
    for key, row in zip(keys, rows[[*columns]].itertuples(), strict=True):
        if not any(part is None or part != part for part in key):
            groups.setdefault(key, []).append(row)
    return groups


def _selected(rows: Sequence[Any], value: Value) -> _Selection:
    """Return the runs of a cell, which only differ in their seed."""
    # Grouped by settings, in the order of the last request.
    variants: dict[str, list[Any]] = {}
    alike = all(same_configuration(row.record, rows[0].record) for row in rows)
    for row in rows:
        settings = "" if alike else settings_of(row.record, row.attack)
        variants[settings] = [*variants.pop(settings, []), row]
    some_finished = [runs for runs in variants.values() if any(run.error is None for run in runs)]
    chosen = (some_finished or [*variants.values()] or [[]])[-1]
    # NaN for a run without that number.
    finished = {run.seed: run for run in chosen if run.error is None and getattr(run, value) >= 0}
    # A run may have failed because its seed is not a number.
    failed = {run.seed: run for run in chosen if run.error and isinstance(run.seed, int)}
    return _Selection(
        [run for _, run in sorted(finished.items())],
        [failed[seed] for seed in sorted(failed.keys() - finished.keys())],
        sum(map(len, variants.values())) - len(chosen),
    )


def _measured(selection: _Selection, value: Value) -> dict[str, Any]:
    """Return the number of one cell, or why there is none."""
    runs = selection.runs
    values = [UNITS[value] * getattr(run, value) for run in runs]
    mean, std = mean_and_std(values)
    kinds = {"no data" if run.error_kind == "DataError" else "failed" for run in selection.failures}
    return {
        "state": "measured" if runs else min(kinds, default="not run"),
        "index": [run.Index for run in runs],
        "seeds": [run.seed for run in runs],
        "values": values,
        "n": len(runs),
        "failed": len(selection.failures),
        "mean": mean,
        "std": std,
        **{
            key: UNITS[value] * mean_and_std(run.timing[key] for run in runs)[0]
            if value == "seconds"
            else math.nan
            for key in ("q1", "q3")
        },
    }


def _printed(view: View) -> dict[Key, dict[Any, Any]]:
    """Return the printed number of each cell."""
    if view.printed.empty:
        return {}
    numbers = view.printed.rename(columns={"mean": "printed_mean", "std": "printed_std"})
    keys = numbers[view.axes].itertuples(index=False, name=None)
    return dict(zip(keys, numbers.to_dict("records"), strict=True))


def _lines(known: Iterable[Key], found: Iterable[Key], axes: Sequence[str]) -> list[Key]:
    """Return the distinct rows or columns of a table: the known ones, then those with new values.

    A new one comes after the last that has the same values before its first new value.
    """
    lines = list(dict.fromkeys(known))
    if not lines:
        return list(dict.fromkeys(found))
    values = [{key[place] for key in lines} for place in range(len(axes))]
    for key in dict.fromkeys(found):
        new = [place for place, part in enumerate(key) if part not in values[place]]
        # Every run has a clean graph, which need not be part of the table.
        if new and all(axes[place] in OPEN and key[place] != CLEAN for place in new):
            alike = [i for i, line in enumerate(lines) if line[: new[0]] == key[: new[0]]]
            lines.insert(alike[-1] + 1 if alike else len(lines), key)
    return lines


def compared(cell: Mapping[str, Any], value: Value) -> dict[str, Any]:
    """Compare the measured number of a cell with the printed one, if there are both."""
    found: dict[str, Any] = dict.fromkeys(["difference", "deviations", "factor", "p", "test"])
    mean, std, printed = cell["mean"], cell["std"], cell["printed_mean"]
    if _missing(mean) or _missing(printed):
        return found
    if value == "seconds":
        return found | {"factor": mean / (printed or math.nan)}
    found["difference"] = mean - printed
    if not cell["n"] > 1:
        return found
    measured, spread = Estimate.of(cell["values"]), cell["printed_std"]
    if _missing(spread):
        found["p"] = measured.p(printed)
    else:
        # Printed numbers are rounded, which bounds the precision of the comparison.
        pooled = max(math.sqrt((std**2 + spread**2) / 2), ROUNDING)
        found["deviations"] = found["difference"] / pooled
        ours = (1, measured.effect, measured.error * math.sqrt(cell["n"]), cell["n"])
        found["p"] = Estimate.sum([ours, (-1, printed, spread, ASSUMED_RUNS)]).p()
    if found["p"] is not None:
        found["test"] = "one sample" if _missing(spread) else "welch"
    return found


def ranked(table: pd.DataFrame, view: View) -> pd.DataFrame:
    """Add the `rank` of the best and second best cell of each row or column; ties share a rank.

    A cell whose attack was misled is not a bound and gets no rank.
    """
    columns = [*view.axes, "graph", "state", "index", "seeds", "values", "n", "failed", "marks"]
    columns += ["test"]
    numbers = ["mean", "std", "q1", "q3", *_PRINTED, "difference", "deviations", "factor", "p"]
    table = table if len(table) else pd.DataFrame(columns=[*columns, *numbers])
    table = table.astype(dict.fromkeys(numbers, float))
    table["rank"] = pd.NA
    lines = {"row": view.rows, "column": view.columns, "none": []}[view.best]
    for _, line in table.groupby(list(lines), sort=False) if lines else ():
        bound = [all(mark.kind != "warning" for mark in marks) for marks in line["marks"]]
        shown = line.loc[bound, "mean"].dropna().round(2)  # equal after rounding: one rank
        # With two cells, the second would just be the worst.
        ranks = (1, 2) if len(line) > 2 else (1,)
        places = dict(zip(sorted({*shown}, reverse=True), ranks, strict=False))
        table.loc[shown.index, "rank"] = shown.map(places)
    return table.astype({"rank": "Int64"})


def _missing(number: float | None) -> bool:
    return number is None or math.isnan(number)
