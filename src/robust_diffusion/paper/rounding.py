"""Where cells come out bit for bit, and how far rounding alone moves accuracies elsewhere."""

import re
from collections.abc import Sequence

import pandas as pd

from robust_diffusion.arithmetic import LIBRARIES, PORTABLE, named_in
from robust_diffusion.evaluation.records import Record, latest_by_cell
from robust_diffusion.paper.cells import settings_of

KEPT = ("cell", "accuracy", "processor", "revision", "time")
TOLERANCE = 1.5
"""Points of accuracy within which a cell is to come out on another machine."""

ARITHMETICS = {"any x86 with AVX2": PORTABLE, "Intel's with AVX2": LIBRARIES, "the same model": {}}
"""Processors on which a cell comes out bit for bit, by the variables that it was recorded with."""


def by_arithmetic(records: Sequence[Record]) -> pd.DataFrame:
    """On which processors the cells of each experiment come out bit for bit.

    Args:
        records: In the order in which they were appended, references included.

    Returns:
        One row per dataset, reading and experiment, and one of all with each cell counted once:
        the number of tested cells by those of `ARITHMETICS` that any has. Empty without any.
    """
    latest = latest_by_cell(records)
    asked = {(str(record.get("cell")), str(record["experiment"])) for record in records}
    rows = [
        {
            "cell": cell,
            "Dataset": latest[cell]["dataset"],
            "Reading": latest[cell]["fidelity"],
            "Experiment": experiment,
            "on": _arithmetic(latest[cell]),
        }
        for cell, experiment in sorted(asked, key=lambda pair: _natural(pair[1]))
        if "accuracy" in latest.get(cell, {})
    ]
    if not rows:
        return pd.DataFrame()
    frame = pd.DataFrame(rows).sort_values(["Dataset", "Reading"], kind="stable")
    keys = ["Dataset", "Reading", "Experiment"]
    had = [name for name in ARITHMETICS if name in set(frame["on"])]
    shown = [
        dict(zip(keys, group, strict=True)) | _counted(found["on"], had)
        for group, found in frame.groupby(keys, sort=False)
    ]
    total = {"Dataset": "all, each once", "Reading": "", "Experiment": ""}
    once = frame.drop_duplicates("cell")["on"]
    return pd.DataFrame([*shown, total | _counted(once, had)])


def _arithmetic(record: Record) -> str:
    named = named_in(record.get("processor", "")).items()
    return next(on for on, variables in ARITHMETICS.items() if named >= variables.items())


def _counted(on: pd.Series, names: Sequence[str]) -> dict[str, str]:
    counts = on.value_counts()
    return {"cells": str(len(on))} | {name: str(counts.get(name, 0)) for name in names}


def _natural(name: str) -> tuple[str, int]:
    """A key by which table-2 comes before table-10."""
    number = re.search(r"\d+$", name)
    return name.rstrip("0123456789"), int(number[0]) if number else 0


def replaced_by(new: Sequence[Record], published: Sequence[Record]) -> list[Record]:
    """What is kept of the published records of cells that have been run once more.

    Args:
        new: The records that take their place.
        published: In the order in which they were appended, references included.
    """
    before, after = latest_by_cell(published), latest_by_cell(new)
    return [
        {key: before[cell][key] for key in KEPT if key in before[cell]}
        for cell, record in after.items()
        if "accuracy" in record
        and "accuracy" in before.get(cell, {})
        and before[cell].get("time") != record.get("time")
    ]


def moved(replaced: Sequence[Record], records: Sequence[Record]) -> pd.DataFrame:
    """By how much accuracy differs between two records of a cell, in points.

    What cells share, a network on the clean graph or on one attacked graph, is counted once.

    Args:
        replaced: What `replaced_by` has kept.
        records: Those that count now; they tell what each cell is.

    Returns:
        One row per dataset, reading and test graph: the number of cells, of their absolute
        differences the median, that below which nine of ten lie, and the largest, the share within
        1.5 points; and of the means over seeds the median and the largest. Empty without any pair.
    """
    now, shown = latest_by_cell(records), {}
    for before in replaced:
        record = now.get(before["cell"], {})
        for graph in before["accuracy"].keys() & record.get("accuracy", {}).keys():
            files = record.get("files", {})
            what = (graph, files.get("victim", before["cell"]), files.get(graph))
            shown[what] = {
                "dataset": record["dataset"],
                "reading": record["fidelity"],
                "graph": graph,
                "setting": (record["model"], record["flow"], settings_of(record, graph)),
                "points": 100 * (record["accuracy"][graph] - before["accuracy"][graph]),
            }
    if not shown:
        return pd.DataFrame()
    return pd.DataFrame(
        [
            {"Dataset": dataset, "Reading": reading, "Test graph": graph, **_summary(found)}
            for (dataset, reading, graph), found in pd.DataFrame(shown.values()).groupby(
                ["dataset", "reading", "graph"]
            )
        ]
    )


def _summary(found: pd.DataFrame) -> dict[str, str]:
    # Accuracies are counts over nodes: without rounding, 1.5 points may be 1.5000000000000002.
    points = found["points"].abs().round(9)
    means = found.groupby("setting")["points"].mean().abs()
    return {
        "cells": str(len(points)),
        "median": f"{points.median():.2f}",
        "nine of ten": f"{points.quantile(0.9):.2f}",
        "largest": f"{points.max():.2f}",
        f"within {TOLERANCE}": f"{(points <= TOLERANCE).mean():.0%}",
        "means: median": f"{means.median():.2f}",
        "means: largest": f"{means.max():.2f}",
    }
