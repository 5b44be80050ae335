"""A layout fitted to records: stand-ins, and the user's own graphs, attacks and models."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from robust_diffusion.paper.axes import AXES, MODELS, STAND_INS, Choice, choice, label_of
from robust_diffusion.paper.layout import Layout, Line
from robust_diffusion.records.records import Record, is_timing
from robust_diffusion.results.cells import CLEAN, Cell, value_at

NAMED = ("dataset", "attack", "model")
"""Axes on which a table grows."""

Meanings = Mapping[str, Choice]
"""Value of an axis -> what it stands for."""


def fit_layout(layout: Layout, cells: Sequence[Cell]) -> Layout:
    """The layout of what was run: with stand-ins, and with rows and columns of the user's own.

    Times are of the paper's dataset if that was timed, else of the one timed last. Accuracies of a
    stand-in follow those of the dataset that it stands in for. Every other dataset, attack and
    model that the table lacks follows its own, in the order in which they were run. Where all of a
    table is of one dataset or model, and only others were run, it becomes one of the newest. Cells
    come in the order in which they were last asked for.
    """
    if layout.kind == "time":
        timed = [c.record["dataset"] for c in cells if c.finished and is_timing(c.record)]
        own = layout.fixed.record["dataset"]
        return layout if own in timed or not timed else layout.on(timed[-1])
    if layout.kind == "budgets":
        return layout
    records = [cell.record for cell in cells]
    datasets = {cell.record["dataset"] for cell in cells if cell.finished}
    stand_ins = {own: other for own, other in STAND_INS.items() if other in datasets}
    fixed = layout.fixed
    own = fixed.keys.get("dataset")
    if own in stand_ins and own not in datasets:
        fixed = fixed.at("dataset", stand_ins[own], choice("dataset", stand_ins[own]))
    rows, columns = (_beside(lines, stand_ins) for lines in (layout.rows, layout.columns))
    for axis in NAMED:
        found = {k: v for record in records for k, v in _meanings(axis, record).items()}
        fixed = _exchanged(fixed, axis, found)
        rows, columns = _grown(rows, axis, found), _grown(columns, axis, found)
    return replace(
        layout,
        fixed=fixed,
        rows=_run(rows, records),
        columns=_run(columns, records),
        below=fit_layout(layout.below, cells) if layout.below else None,
    )


def _beside(lines: Sequence[Line], stand_ins: Mapping[str, str]) -> tuple[Line, ...]:
    """The lines, after each block of a dataset the same of its stand-in."""
    beside: list[Line] = []
    for dataset, group in groupby(lines, key=lambda line: line.keys.get("dataset", "")):
        block = list(group)
        beside += block
        if other := stand_ins.get(dataset):
            beside += [line.at("dataset", other, choice("dataset", other)) for line in block]
    return tuple(beside)


def _exchanged(fixed: Line, axis: str, found: Meanings) -> Line:
    if axis == "attack" or fixed.keys.get(axis) in {None, *found} or not found:
        return fixed
    value = list(found)[-1]
    return replace(fixed.at(axis, value, found[value]), own=True)


def _grown(lines: tuple[Line, ...], axis: str, found: Meanings) -> tuple[Line, ...]:
    """The lines and, for each value that they lack, the same of that value."""
    have = {line.keys[axis] for line in lines if axis in line.keys}
    grown = list(lines)
    for value, meaning in found.items() if have else ():
        if value in have:
            continue
        for line in lines:
            own = replace(line.at(axis, value, meaning), own=True)
            if own not in grown:
                grown.insert(_place(own, axis, grown), own)
    return tuple(grown)


def _run(lines: tuple[Line, ...], records: Sequence[Record]) -> tuple[Line, ...]:
    """The table's own lines, and of the others those of which there is a record."""
    return tuple(x for x in lines if not x.own or any(_fits(x, record) for record in records))


def _place(own: Line, axis: str, lines: Sequence[Line]) -> int:
    """Behind the last of the lines that are the same on all axes before this one."""
    before = list(own.keys)[: list(own.keys).index(axis)]
    alike = [i for i, x in enumerate(lines) if all(x.keys.get(a) == own.keys[a] for a in before)]
    return alike[-1] + 1


def _fits(line: Line, record: Record) -> bool:
    if line.keys.get("attack", CLEAN) not in (CLEAN, *_attacks(record)):
        return False
    return all(value_at(record, path) == value for path, value in line.record.items())


def _meanings(axis: str, record: Record) -> dict[str, Choice]:
    """Values of a record on an axis -> their meaning."""
    if axis == "model":
        return _model(record)
    names = [str(record["dataset"])] if axis == "dataset" else _attacks(record)
    read, known = AXES[axis]
    return {name: read(name) if name in (known or {}) else _named(axis, name) for name in names}


def _named(axis: str, name: str) -> Choice:
    """Meaning of a value that no table of the paper has."""
    return Choice(label_of(axis, name), {axis: name}, {axis: name} if axis == "dataset" else {})


def _attacks(record: Record) -> list[str]:
    # A cell that failed says what it was to be attacked by.
    names = record.get("accuracy") or record.get("config", {}).get("attacks") or {}
    return [name for name in names if name != CLEAN]


def _model(record: Record) -> dict[str, Choice]:
    """The model, or its flow; nothing of a known flow with options that no table knows.

    Under its name, that would pass for the flow itself.
    """
    for name, (label, where) in MODELS.items():
        if all(value_at(record, path) == value for path, value in where.items()):
            return {name: Choice(label, {"model": name}, where)}
    model, flow = record["model"], record.get("flow")
    if model != "graph_pde":
        return {model: Choice(label_of("model", model), {"model": model}, {"model": model})}
    if any(where.get("flow") == flow for _, where in MODELS.values()):
        return {}
    name = f"{model} {flow}" if flow in MODELS else str(flow)  # a flow may be called as a model is
    return {name: Choice(name, {"model": name}, {"model": model, "flow": flow})}
