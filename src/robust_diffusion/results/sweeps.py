"""Tables of the runs that a command asked for: accuracies, or a ranking by validation."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import pandas as pd

from robust_diffusion.evaluation.flag_codes import DECLARED, OF_THE_NUMBER, remedy_of
from robust_diffusion.records.record import CLEAN, Record
from robust_diffusion.results.budgets import describe_budget, describe_cuts, listed
from robust_diffusion.results.comparison import compare_settings
from robust_diffusion.results.evidence import ENSEMBLES, poisons
from robust_diffusion.results.frame import (
    differing_keys,
    expected_graphs,
    narrow_frame,
    settings_by_path,
)
from robust_diffusion.results.marks import coded_warnings, named_seeds
from robust_diffusion.results.show import Table
from robust_diffusion.results.view import View, cells
from robust_diffusion.results.worst_case import CONTROL, show_worst_cases

ALWAYS_SHOWN = ("dataset", "model", "flow")

TIME = "ms per step"

MLP_NOTE = (
    "mlp: trained in this sweep on the same split, without attacks; it ignores edges, so neither "
    "injected nodes nor flipped edges change its accuracy (mlp=false leaves it out)"
)
VALIDATION = "validation"

Shown = Literal["test", "validation", "changes", "validation_changes", "worst_case"]
"""What an experiment shows of its runs, by `hydra.callbacks.results.shows`."""


def sweep_table(records: Sequence[Record], shown: Shown) -> Table:
    """Return a table of the runs of a sweep, at least one."""
    if shown == "worst_case":
        return show_worst_cases(narrow_frame(records))
    if shown.endswith("changes"):
        return compare_settings(
            records, on="validation" if shown.startswith(VALIDATION) else "test"
        )
    return ranking(records) if shown == VALIDATION else accuracies(records)


def accuracies(records: Sequence[Record]) -> Table:
    """Tabulate accuracies in % on each test graph, or times, of each swept combination.

    Args:
        records: Runs as they were requested, at least one.
    """
    mlps = _controls(records)
    records = [record for record in records if record not in mlps]
    rows, names = _swept(records)
    tested = View([*names], ["attack"], headings=[*names.values()])
    timed = View([*names], [], headings=[*names.values()], value="seconds")
    lines = _lines(rows, tested) if any(not record.is_timing for record in records) else {}
    for key, line in _lines(rows, timed, TIME).items():
        lines[key] = lines.get(key, {}) | line
    notes = flag_notes(records)
    if mlps:
        lines |= _mlp_lines(mlps, records, [*names.values()])
        notes = [*notes, MLP_NOTE]
    return Table("", _frame(lines), _title(records), notes=notes)


def _controls(records: Sequence[Record]) -> list[Record]:
    """Return the MLPs of a sweep that attacks other models only."""
    attacked = any(record.config.attacks for record in records)
    return [r for r in records if attacked and r.model == CONTROL and not r.config.attacks]


def _mlp_lines(
    mlps: Sequence[Record], records: Sequence[Record], headings: Sequence[str]
) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the lines of MLPs; attacks that change no features of nodes leave them as they are."""
    clean = View(["setting"], ["attack"])
    spent = [(graph, of) for r in records for graph, by in r.spent.items() for of in by.values()]
    changed = {graph for graph, counts in spent if counts.get("changed_nodes")}
    same = dict.fromkeys(graph for graph, _ in spent if graph not in changed)
    at = next((key for key in ("model", "flow") if key in headings), headings[0])
    by_labels: dict[tuple[str, ...], list[Record]] = {}
    for record in mlps:
        of = {key: _setting(record, key) if key in record.overrides else None for key in headings}
        shown = {key: value or "-" for key, value in (of | {"flow": None}).items()}
        shown[at] = CONTROL if at in ("model", "flow") or not of[at] else f"{of[at]}, {CONTROL}"
        by_labels.setdefault(tuple(shown[key] for key in headings), []).append(record)
    lines = {}
    for labels, alike in by_labels.items():
        rows = expected_graphs(narrow_frame(alike)).assign(setting=CONTROL)
        (cell,) = cells(rows, clean).to_dict("records")
        line = dict(zip(headings, labels, strict=True)) | {"seeds": cell["n"]}
        for graph in (CLEAN, *same):
            line |= {graph: cell["mean"], f"{graph} ±": cell["std"]}
            line |= {f"{graph} failed": cell["failed"], f"{graph} !": False}
        lines[labels] = line
    return lines


def ranking(records: Sequence[Record]) -> Table:
    """Rank the swept combinations by accuracy on the clean validation nodes, best first.

    Use it to select hyper-parameters without the test nodes. Failed runs come last.

    Args:
        records: Runs as they were requested, at least one.
    """
    rows, names = _swept(records)
    view = View([*names], [], {"attack": CLEAN}, "validation", headings=[*names.values()])
    lines = _frame(_lines(rows, view, VALIDATION))
    lines = lines.sort_values(VALIDATION, ascending=False, kind="stable", ignore_index=True)
    title = f"{_common(records, 'dataset')}: accuracy on clean validation nodes in %, best first"
    return Table("", lines, f"{title}; fidelity={_common(records, 'fidelity')}")


def _swept(records: Sequence[Record]) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return rows of `frame` with a column per setting that differs, and the names of these."""
    typed = (key for record in records for key in record.overrides if key != "seed")
    keys = dict.fromkeys([*ALWAYS_SHOWN, *typed])
    values = [{key: _setting(record, key) for key in keys} for record in records]
    settings = [{k: v for k, v in of.items() if v is not None} for of in values]
    # A single row still needs a name: its flow, or its model if it has none.
    name = "flow" if records[0].model == "graph_pde" else "model"
    differing = differing_keys(settings, ALWAYS_SHOWN) or [name]
    names = {f"swept {key}": key for key in differing}
    requested = pd.DataFrame(
        [{column: typed.get(key, "") for column, key in names.items()} for typed in settings]
    )
    # Several settings may have requested the same run.
    requested["run"] = [record.run for record in records]
    return requested.drop_duplicates().merge(expected_graphs(narrow_frame(records))), names


def _setting(record: Record, key: str) -> str | None:
    """Return a setting of a run as it was typed, else as the run has it; `None` if it has none."""
    if not record.reads(key.partition(".")[0]):
        return None
    if key in ALWAYS_SHOWN:
        value = getattr(record, key)
    elif (value := record.overrides.get(key)) is None:
        known = settings_by_path(record) | {
            f"budget.{k}": v for k, v in record.config.budget.items()
        }
        value = known.get(key, getattr(record, key, None))
    return str(value) if isinstance(value, str | int | float) else None


def _lines(rows: pd.DataFrame, view: View, name: str = "") -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the cells of a view in one line per row, each with its seeds."""
    lines: dict[tuple[str, ...], dict[str, Any]] = {}
    for cell in cells(rows, view).to_dict("records"):
        labels, column = view.texts(cell)
        heading = name or " ".join(column)
        line = lines.setdefault(tuple(labels), dict(zip(view.headings, labels, strict=True)))
        line["seeds"] = max(cell["n"], line.get("seeds", 0))
        runs = rows.loc[cell["index"], "record"]
        line[heading] = cell["mean"]
        ends = {"±": "std"} if view.value != "seconds" else {"q1": "q1", "q3": "q3"}
        line |= {f"{heading} {end}": cell[key] for end, key in ends.items()}
        line[f"{heading} failed"] = cell["failed"]
        line[f"{heading} !"] = any(_doubts(record, cell["graph"]) for record in runs)
    return lines


def _frame(lines: Mapping[Any, dict[str, Any]]) -> pd.DataFrame:
    cells = pd.DataFrame([*lines.values()])
    counts = [name for name in cells if str(name).endswith(" failed")]  # missing in some lines
    return cells.astype(dict.fromkeys(counts, "Int64"))


def _doubts(record: Record, graph: str) -> list[str]:
    """Return the flags that put an accuracy in doubt, instead of hinting at a weak attack.

    All flags of an attack that estimates the worst case do.
    """
    claims = graph in ENSEMBLES or graph == "victim"
    codes = (code for code, _ in coded_warnings(record, graph))
    return [code for code in codes if claims or code in OF_THE_NUMBER]


def flag_notes(records: Sequence[Record]) -> list[str]:
    """Return a line per kind of doubt about a number, and one line on attacks that may be weak.

    Each remedy is printed once, after the first flag that it answers.
    """
    doubts = dict[tuple[str, str], dict[str, list[Record]]]()
    weak, printed = dict[str, tuple[str, dict[str, None]]](), set[str]()
    for record in records:
        for graph in record.warnings:
            doubtful = _doubts(record, graph)
            for code, line in coded_warnings(record, graph):
                if code in doubtful:
                    by_line = doubts.setdefault((graph, code), {})
                    by_line.setdefault(line, []).append(record)
                else:
                    weak.setdefault(code, (line, {}))[1][graph] = None
    notes = [
        _doubt(graph, by_line, records) + _to_do(code, graph, printed)
        for (graph, code), by_line in doubts.items()
    ]
    if weak:
        text = "; ".join(
            f"{', '.join(graphs)}: {line}{_to_do(code, next(iter(graphs)), printed)}"
            for code, (line, graphs) in weak.items()
        )
        transferred = any(record.threat == "black_box" for record in records)
        advice = " threat=white_box attack=auto attacks the model itself." if transferred else ""
        notes.append(f"May be weak: {text}.{advice}")
    return notes


def _doubt(graph: str, by_line: Mapping[str, list[Record]], records: Sequence[Record]) -> str:
    """Describe a doubt once for all models and seeds that have it."""
    doubted = [record for of_line in by_line.values() for record in of_line]
    names = dict.fromkeys(record.model_name for record in doubted)
    # A remark on a shared attacked graph holds for every model.
    every = {r.model_name for r in records if graph in r.accuracy or graph == "victim"}
    who = f"{', '.join(names)}, " if every - {*names} else ""
    line, *others = by_line
    more = " (other numbers elsewhere)" if others else ""
    return f"! {who}{graph}, {named_seeds(sorted({r.seed for r in doubted}))}: {line}{more}"


def _to_do(code: str, graph: str, printed: set[str]) -> str:
    """Return the remedy of a flag in brackets, and note it as printed; "" if it was before."""
    remedy = remedy_of(code, graph) if code in DECLARED else ""
    text = f" (to do: {remedy})" if remedy and remedy not in printed else ""
    printed.add(remedy)
    return text


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
