"""Result table at the end of a run or sweep."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from robust_diffusion.evaluation.flag_codes import OF_THE_NUMBER
from robust_diffusion.records.record import CLEAN, Record
from robust_diffusion.records.records import merged
from robust_diffusion.results.captions import (
    NUMBER,
    describe_budget,
    describe_cuts,
    differing_keys,
    listed,
)
from robust_diffusion.results.evidence import ENSEMBLES, poisons
from robust_diffusion.system.numbers import mean_and_std, spread

ALWAYS_SHOWN = ("dataset", "model", "flow")


@dataclass(frozen=True)
class ResultTable:
    """Accuracy in % per test graph, with one row per swept combination except seeds."""

    title: str  # setting that all rows have in common
    cells: pd.DataFrame  # the columns of `keys`, then `seeds`, then a text column per test graph
    keys: list[str]  # columns that identify a row
    notes: list[str]  # explanations of `!`, and attacks that may be weak


NO_RUNS = ResultTable("no finished run", pd.DataFrame({"model": []}), ["model"], [])
"""Table of records without a finished run."""


def summarize(records: Sequence[Record]) -> ResultTable:
    """Tabulate mean +- sample standard deviation over seeds for each swept combination.

    Failed runs, those with an `error`, show as `failed` in their row.

    Raises:
        ValueError: There are no records.
    """
    by_setting, keys = _by_setting(records)
    graphs = list(dict.fromkeys(g for record in records for g in record.accuracy))
    timed = any(record.is_timing for record in records)
    graphs = graphs or [CLEAN] * (not timed)  # a column for the failures if no run finished
    lines = []
    for setting, runs in by_setting.items():
        line, failed = _line(keys, setting, runs)
        finished = [run for run in runs if run.error is None]
        for graph in graphs:
            reached = (run.accuracy.get(graph) for run in finished)
            line[graph] = _cell([accuracy for accuracy in reached if accuracy is not None], failed)
            if any(_warnings(run, graph)[0] for run in runs):
                line[graph] += " !"
        if timed:
            line["ms per step"] = _with_failures(
                _time(run for run in finished if run.is_timing), failed
            )
        lines.append(line)
    return ResultTable(_title(records), pd.DataFrame(lines), keys, flag_notes(records))


def rank(records: Sequence[Record]) -> ResultTable:
    """Rank the swept combinations by accuracy on the clean validation nodes, best first.

    Use it to select hyper-parameters without the test nodes. The last column is `validation`, in %,
    and failed runs come last.

    Raises:
        ValueError: There are no records.
    """
    by_setting, keys = _by_setting(records)
    lines = []
    for setting, runs in by_setting.items():
        line, failed = _line(keys, setting, runs)
        values = [run.val_accuracy for run in runs if run.val_accuracy is not None]
        mean, _ = mean_and_std(values)
        lines.append(line | {"validation": _cell(values, failed), "mean": mean})
    table = pd.DataFrame(lines).sort_values("mean", ascending=False, kind="stable")
    title = f"{_common(records, 'dataset')}: accuracy on clean validation nodes in %, best first"
    title += f"; fidelity={_common(records, 'fidelity')}"
    return ResultTable(title, table.drop(columns="mean").reset_index(drop=True), keys, [])


def _by_setting(
    records: Sequence[Record],
) -> tuple[dict[tuple[str, ...], list[Record]], list[str]]:
    """Return a run per seed of each setting, and the columns of a setting.

    If a seed has several runs, the latest finished one counts, or the latest failure if none
    finished.
    """
    if not records:
        raise ValueError("no records to show")
    rows = [_row(record) for record in records]
    # A single row still needs a name: its flow, or its model if it has none.
    name_column = ["flow"] if rows[0].get("model") == "graph_pde" else ["model"]
    keys = differing_keys(rows, ALWAYS_SHOWN) or name_column
    # Several settings may have requested the same run.
    settings = [tuple(row.get(key, "") for key in keys) for row in rows]
    latest = {record.run: record for record in merged(records)}
    runs: dict[tuple[str, ...], dict[Any, Record]] = {setting: {} for setting in settings}
    asked = zip(settings, records, strict=True)
    for setting, record in sorted(asked, key=lambda item: item[1].error is None):
        runs[setting][record.seed] = latest[record.run]
    return {setting: list(by_seed.values()) for setting, by_seed in runs.items()}, keys


def _line(
    keys: Sequence[str], setting: Sequence[str], runs: Sequence[Record]
) -> tuple[dict[str, Any], int]:
    """Return the first columns of a row, and the number of its failed seeds."""
    failed = sum(run.error is not None for run in runs)
    return dict(zip(keys, setting, strict=True)) | {"seeds": len(runs) - failed}, failed


def _warnings(record: Record, graph: str) -> tuple[list[str], list[str]]:
    """Split warnings into doubts about the accuracy, and hints that the attack may be weak.

    All warnings of an attack that estimates the worst case are doubts.
    """
    lines = record.warnings.get(graph, [])
    codes = record.flags.get(graph, lines)
    doubts, weak = list[str](), list[str]()
    for code, line in zip(codes, lines, strict=False):
        claims = graph in ENSEMBLES or graph == "victim" or code in OF_THE_NUMBER
        (doubts if claims else weak).append(line)
    return doubts, weak


def flag_notes(records: Sequence[Record]) -> list[str]:
    """Return a line per doubt about a number, and one line on attacks that may be weak."""
    names = [record.model_name for record in records]
    prefixes = [f"{name}, " if name and len(set(names)) > 1 else "" for name in names]
    notes, weak = list[str](), dict[str, tuple[str, dict[str, None]]]()
    for name, record in zip(prefixes, records, strict=True):
        for graph in record.warnings:
            doubts, others = _warnings(record, graph)
            notes += [f"! {name}{graph}, seed {record.seed}: {line}" for line in doubts]
            for line in others:
                # Warnings that only differ in their numbers are merged.
                weak.setdefault(NUMBER.sub("", line), (line, {}))[1][graph] = None
    if weak:
        text = "; ".join(f"{', '.join(graphs)}: {line}" for line, graphs in weak.values())
        transferred = any(record.threat == "black_box" for record in records)
        advice = " threat=white_box attack=auto attacks the model itself." if transferred else ""
        notes.append(f"May be weak: {text}.{advice}")
    return list(dict.fromkeys(notes))


def _row(record: Record) -> dict[str, str]:
    swept = {
        key: value
        for key, value in record.overrides.items()
        if key != "seed" and record.reads(key.partition(".")[0])
    }
    named = {key: value for key in ALWAYS_SHOWN if (value := getattr(record, key)) is not None}
    return {key: str(value) for key, value in (swept | named).items()}


def _cell(values: Sequence[float], failed: int) -> str:
    mean, std = mean_and_std(values)
    return _with_failures(spread(100 * mean, 100 * std, 2) if values else "", failed)


def _time(records: Iterable[Record]) -> str:
    """Format the median with the quartiles in brackets; means over several seeds."""
    times = [(r.seconds["diffusion"], r.timing["q1"], r.timing["q3"]) for r in records]
    return "{:.3g} ({:.3g}–{:.3g})".format(*1e3 * pd.DataFrame(times).mean()) if times else ""


def _with_failures(text: str, failed: int) -> str:
    if not text:
        return "failed" if failed else "-"
    return f"{text} ({failed} failed)" if failed else text


def _common(records: Sequence[Record], key: str) -> str:
    return listed(getattr(record, key) for record in records)


def _title(records: Sequence[Record]) -> str:
    common = partial(_common, records)
    parts = [f"{common('dataset')}, {common('difficulty')} test nodes: accuracy in %"]
    if all(record.is_timing for record in records):
        timings = [record.timing for record in records if record.timing]
        devices = listed(timing["device"] for timing in timings)
        kinds = " or ".join(dict.fromkeys(timing["step"] for timing in timings)) or "step"
        parts = [f"{common('dataset')}: time of one {kinds}, median and quartiles"]
        parts += [devices] if devices else []
    parts += describe_cuts(records)
    attacked = [r for r in records if len(r.accuracy) > 1]
    if attacked:
        surrogates = listed(name for r in records for name in r.surrogates)
        threat = f"{common('threat')} ({surrogates})" if surrogates else common("threat")
        poisoned = {poisons(record) for record in attacked}
        words = {False: "evasion, not retrained", True: "retrained on each attacked graph"}
        budget = describe_budget(attacked)
        if poisoned == {True}:
            budget = budget.replace("the target nodes", "all nodes")
        parts.append(f"{threat}, {' or '.join(words[p] for p in sorted(poisoned))}, {budget}")
    parts.append(f"fidelity={common('fidelity')}")
    return "; ".join(parts)
