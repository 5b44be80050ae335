"""Result table at the end of a run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from robust_diffusion.evaluation.records import Record, is_timing
from robust_diffusion.results.captions import describe_budget, describe_cuts
from robust_diffusion.results.numbers import spread

ALWAYS_SHOWN = ("dataset", "model", "flow")


@dataclass(frozen=True)
class ResultTable:
    """Accuracy in % per test graph, a row for each combination of what was swept, seeds aside."""

    title: str  # what all rows have in common
    cells: pd.DataFrame  # the columns of `keys`, then `seeds`, then one of text per test graph
    keys: list[str]  # columns that tell the rows apart
    notes: list[str]  # warnings of attacks, which a `!` in a cell stands for


def summarize(records: Sequence[Record]) -> ResultTable:
    """Mean +- sample standard deviation over seeds, of each combination that one run swept.

    Failed cells, those with an `error`, show as `failed` in their row.

    Raises:
        ValueError: There are no records.
    """
    keys, groups = _group(records)
    graphs = list(dict.fromkeys(g for record in records for g in record.get("accuracy", {})))
    timed = any(map(is_timing, records))
    for line, done, failed in groups:
        for graph in graphs:
            values = [r["accuracy"][graph] for r in done if graph in r.get("accuracy", {})]
            line[graph] = _cell(values, failed)
            if any(graph in record.get("warnings", {}) for record in done):
                line[graph] += " !"
        if timed:
            line["ms per step"] = _time([r for r in done if is_timing(r)], failed)
    cells = pd.DataFrame([line for line, _, _ in groups])
    return ResultTable(_title(records), cells, keys, _notes(records))


def rank(records: Sequence[Record]) -> ResultTable:
    """Accuracy on the clean validation nodes of each combination that was swept, best first.

    It is what hyper-parameters are chosen by; the test nodes do not come into it. Its last column
    is `validation`, in %, and failed cells come last.

    Raises:
        ValueError: There are no records.
    """
    keys, groups = _group(records)
    means = []
    for line, done, failed in groups:
        values = [record["val_accuracy"] for record in done]
        line["validation"] = _cell(values, failed)
        means.append(pd.Series(values, dtype=float).mean())
    best_first = pd.Series(means).sort_values(ascending=False, kind="stable").index
    cells = pd.DataFrame([line for line, _, _ in groups]).loc[best_first].reset_index(drop=True)
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
    records: Sequence[Record],
) -> tuple[list[str], list[tuple[dict[str, Any], list[Record], int]]]:
    """Columns that tell settings apart; per setting its line, finished records, failed seeds."""
    if not records:
        raise ValueError("no records to show")
    rows = [_row(record) for record in records]
    keys = _row_keys(rows)
    members: dict[tuple[str, ...], list[Record]] = {}
    for row, record in zip(rows, records, strict=True):
        members.setdefault(tuple(row.get(key, "") for key in keys), []).append(record)
    groups = []
    for values, found in members.items():
        by_seed = _by_seed(found)
        done = [record for record in by_seed if "error" not in record]
        line = dict(zip(keys, values, strict=True)) | {"seeds": len(done)}
        groups.append((line, done, len(by_seed) - len(done)))
    return keys, groups


def _by_seed(records: Iterable[Record]) -> list[Record]:
    """One record per seed: the latest finished one, or else the latest failure."""
    latest: dict[Any, Record] = {}
    for record in records:
        seed = record.get("seed")  # of a failure it may be anything, or nothing
        if "error" not in record or "error" in latest.get(seed, record):
            latest[seed] = record
    return list(latest.values())


def _cell(values: Sequence[float], failed: int) -> str:
    series = 100 * pd.Series(values, dtype=float)
    text = spread(series.mean(), series.std(), 2) if values else ""
    return _with_failures(text, failed)


def _time(records: Sequence[Record], failed: int) -> str:
    """The median, and in brackets the quartiles; of several seeds their means."""
    if not records:
        return _with_failures("", failed)
    times = [(r["seconds"]["diffusion"], r["timing"]["q1"], r["timing"]["q3"]) for r in records]
    median, q1, q3 = 1e3 * pd.DataFrame(times).mean()
    return _with_failures(f"{median:.3g} ({q1:.3g}–{q3:.3g})", failed)


def _with_failures(text: str, failed: int) -> str:
    if not text:
        return "failed" if failed else "-"
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
