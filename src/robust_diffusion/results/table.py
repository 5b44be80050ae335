"""Result table at the end of a run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from robust_diffusion.evaluation.records import Record, is_timing
from robust_diffusion.results.captions import describe_budget, describe_cuts

ALWAYS_SHOWN = ("dataset", "model", "flow")


@dataclass(frozen=True)
class ResultTable:
    """Accuracy in % per row and test graph.

    Args:
        title: What all rows have in common.
        cells: One row per combination of what was swept, seeds aside; first the columns in
            `keys`, then `seeds`, then one column of text per test graph.
        keys: Names of the columns that tell the rows apart.
        notes: What a `!` in a cell stands for: an attack that broke its budget, changed nothing, or
            was weaker than chance.
    """

    title: str
    cells: pd.DataFrame
    keys: list[str]
    notes: list[str]


def summarize(records: Sequence[Record]) -> ResultTable:
    """Mean +- sample standard deviation over seeds, of each combination that was swept.

    Args:
        records: Records of one run, failed cells (those with an `error`) included.

    Returns:
        The table; a failed cell shows as `failed` in its row.

    Raises:
        ValueError: There are no records.
    """
    if not records:
        raise ValueError("no records to summarize")
    rows = [_row(record) for record in records]
    keys = _row_keys(rows)
    graphs = list(dict.fromkeys(g for record in records for g in record.get("accuracy", {})))
    timed = any(map(is_timing, records))
    lines = []
    for _, group in _group(rows, records, keys):
        members = _by_seed(record for _, record in group)
        done = [record for record in members if "error" not in record]
        line: dict[str, Any] = {key: group[0][0].get(key, "") for key in keys}
        line["seeds"] = len(done)
        for graph in graphs:
            values = [r["accuracy"][graph] for r in done if graph in r.get("accuracy", {})]
            line[graph] = _cell(values, failed=len(members) - len(done))
            if any(graph in record.get("warnings", {}) for record in done):
                line[graph] += " !"
        if timed:
            line["ms per step"] = _time([r for r in done if is_timing(r)], len(members) - len(done))
        lines.append(line)
    return ResultTable(_title(records), pd.DataFrame(lines), keys, _notes(records))


def rank(records: Sequence[Record]) -> ResultTable:
    """Accuracy on the clean validation nodes of each combination that was swept, best first.

    It is what hyper-parameters are chosen by; the test nodes do not come into it.

    Args:
        records: Records of one run, failed cells (those with an `error`) included.

    Returns:
        The table, its last column `validation` in %; failed cells come last.

    Raises:
        ValueError: There are no records.
    """
    if not records:
        raise ValueError("no records to rank")
    rows = [_row(record) for record in records]
    keys = _row_keys(rows)
    lines, means = [], []
    for _, group in _group(rows, records, keys):
        members = _by_seed(record for _, record in group)
        done = [record["val_accuracy"] for record in members if "error" not in record]
        line: dict[str, Any] = {key: group[0][0].get(key, "") for key in keys}
        line["seeds"] = len(done)
        line["validation"] = _cell(done, failed=len(members) - len(done))
        lines.append(line)
        means.append(pd.Series(done, dtype=float).mean())
    best_first = pd.Series(means).sort_values(ascending=False, kind="stable").index
    cells = pd.DataFrame(lines).loc[best_first].reset_index(drop=True)
    title = f"{records[0]['dataset']}: accuracy on clean validation nodes in %, best first"
    return ResultTable(f"{title}; fidelity={records[0]['fidelity']}", cells, keys, [])


def _notes(records: Sequence[Record]) -> list[str]:
    return list(
        dict.fromkeys(
            f"! {attack}, seed {record['seed']}: {warning}"
            for record in records
            for attack, warnings in record.get("warnings", {}).items()
            for warning in warnings
        )
    )


def _row(record: Record) -> dict[str, str]:
    # A flow or solver that the model does not read is `None` in its record, options included.
    swept = {
        key: value
        for key, value in record.get("overrides", {}).items()
        if key != "seed" and record.get(key.partition(".")[0], value) is not None
    }
    named = {key: record[key] for key in ALWAYS_SHOWN if record.get(key) is not None}
    return {key: str(value) for key, value in (swept | named).items()}


def _row_keys(rows: Sequence[dict[str, str]]) -> list[str]:
    names = list(dict.fromkeys([*ALWAYS_SHOWN, *(key for row in rows for key in row)]))
    differing = [name for name in names if len({row.get(name, "") for row in rows}) > 1]
    # A single row still needs a name: its flow, or its model if it has none.
    return differing or (["flow"] if "flow" in rows[0] else ["model"])


def _group(
    rows: Sequence[dict[str, str]], records: Sequence[Record], keys: Sequence[str]
) -> list[tuple[tuple[str, ...], list[tuple[dict[str, str], Record]]]]:
    groups: dict[tuple[str, ...], list[tuple[dict[str, str], Record]]] = {}
    for row, record in zip(rows, records, strict=True):
        groups.setdefault(tuple(row.get(key, "") for key in keys), []).append((row, record))
    return list(groups.items())


def _by_seed(records: Iterable[Record]) -> list[Record]:
    """One record per seed: the latest finished one, or else the latest failure."""
    latest: dict[int, Record] = {}
    for record in records:
        if "error" not in record or "error" in latest.get(record["seed"], record):
            latest[record["seed"]] = record
    return list(latest.values())


def _cell(values: Sequence[float], *, failed: int) -> str:
    if not values:
        return "failed" if failed else "-"
    series = 100 * pd.Series(values)
    text = f"{series.mean():.2f}"
    if len(values) > 1:
        text += f" ± {series.std():.2f}"
    return f"{text} ({failed} failed)" if failed else text


def _time(records: Sequence[Record], failed: int) -> str:
    """The median, and in brackets the quartiles; of several seeds their means."""
    if not records:
        return "failed" if failed else "-"
    median, q1, q3 = (
        1e3 * pd.Series(found).mean()
        for found in (
            [r["seconds"]["diffusion"] for r in records],
            [r["timing"]["q1"] for r in records],
            [r["timing"]["q3"] for r in records],
        )
    )
    text = f"{median:.3g} ({q1:.3g}–{q3:.3g})"
    return f"{text} ({failed} failed)" if failed else text


def _title(records: Sequence[Record]) -> str:
    def common(key: str) -> str:
        return ", ".join(dict.fromkeys(str(r[key]) for r in records if r.get(key) is not None))

    parts = [f"{common('dataset')}, {common('difficulty')} test nodes: accuracy in %"]
    if all(map(is_timing, records)):
        timings = [r["timing"] for r in records if "timing" in r]
        devices = ", ".join(dict.fromkeys(timing["device"] for timing in timings))
        kinds = " or ".join(dict.fromkeys(timing["step"] for timing in timings)) or "step"
        parts = [f"{common('dataset')}: time of one {kinds}, median and quartiles"]
        parts += [devices] if devices else []
    parts += describe_cuts(records)
    attacked = [r for r in records if len(r.get("accuracy", {})) > 1]
    if attacked:
        surrogates = ", ".join(dict.fromkeys(s for r in records for s in r.get("surrogates", [])))
        threat = f"{common('threat')} ({surrogates})" if surrogates else common("threat")
        parts.append(f"{threat}, {describe_budget(attacked)}")
    parts.append(f"fidelity={common('fidelity')}")
    return "; ".join(parts)
