"""A layout fitted to records: replacement datasets, and the user's graphs, attacks and models."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, takewhile

from robust_diffusion.paper.axes import MODELS, NAMED, STAND_INS, Choice, choice
from robust_diffusion.paper.layout import Grid, Layout, Line
from robust_diffusion.records.records import CLEAN, Record, has_values, is_timing


def fit_layout(layout: Layout, records: Sequence[Record]) -> Layout:
    """Return the layout of what was run, with replacement datasets and the user's rows and columns.

    Times are of the paper's dataset if that was timed, else of the one timed last. Accuracies of a
    stand-in follow those of the dataset that it stands in for. Every other dataset, attack and
    model that the table lacks follows its own, in the order in which they were run. Where all of a
    table is of one dataset or model, and only others were run, it becomes one of the newest. Runs
    come in the order in which they were last asked for.
    """
    fixed, dataset = layout.fixed, layout.fixed.keys.get("dataset", "")
    if layout.kind != "accuracy":
        timed = [r["dataset"] for r in records if "error" not in r and is_timing(r)]
        if layout.kind == "budgets" or dataset in timed or not timed:
            return layout
        # Beside the times that are printed of the paper's dataset.
        here = replace(_choice("dataset", timed[-1]), printed=fixed.printed)
        return replace(layout, fixed=fixed.at("dataset", here))
    datasets = {record["dataset"] for record in records if "error" not in record}
    stand_ins = {name: choice("dataset", sub) for name, sub in STAND_INS.items() if sub in datasets}
    if dataset in stand_ins and dataset not in datasets:
        fixed = fixed.at("dataset", stand_ins[dataset])
    recorded: dict[str, dict[str, Choice]] = {"dataset": {}, "attack": {}, "model": {}}
    for axis, one in (each for record in records for each in _choices(record)):
        recorded[axis][one.value] = one
    for axis in ("dataset", "model"):
        if recorded[axis] and fixed.keys.get(axis) not in (None, *recorded[axis]):
            fixed = replace(fixed.at(axis, list(recorded[axis].values())[-1]), added=True)

    def fitted(lines: Sequence[Line]) -> tuple[Line, ...]:
        grown = _with_stand_ins(lines, stand_ins)
        for axis, choices in recorded.items():
            _grow(grown, axis, choices)
        # Of the user's own lines those of which there is a record.
        return tuple(x for x in grown if not x.added or any(_fits(x, record) for record in records))

    def on(grid: Grid) -> Grid:
        return replace(grid, rows=fitted(grid.rows), columns=fitted(grid.columns))

    return replace(layout, fixed=fixed, grids=tuple(map(on, layout.grids)))


def _with_stand_ins(lines: Sequence[Line], stand_ins: Mapping[str, Choice]) -> list[Line]:
    """Return the lines, with those of a stand-in after each dataset's block."""
    grown: list[Line] = []
    for dataset, group in groupby(lines, key=lambda line: line.keys.get("dataset", "")):
        grown += (block := list(group))
        if other := stand_ins.get(dataset):
            grown += [line.at("dataset", other) for line in block]
    return grown


def _grow(lines: list[Line], axis: str, choices: Mapping[str, Choice]) -> None:
    """Insert the same lines for each value that the lines lack."""
    old = list(lines)
    have = {line.keys[axis] for line in old if axis in line.keys}
    for value in (v for v in choices if have and v not in have):
        for line in old:
            new = replace(line.at(axis, choices[value]), added=True)
            if new not in lines:
                # Behind the last of the lines that are the same on all axes before this one.
                before = dict(takewhile(lambda key: key[0] != axis, new.keys.items())).items()
                alike = [i for i, x in enumerate(lines) if before <= x.keys.items()]
                lines.insert(alike[-1] + 1, new)


def _fits(line: Line, record: Record) -> bool:
    attacked = line.keys.get("attack", CLEAN) in (CLEAN, *_attacks(record))
    return attacked and has_values(record, line.record)


def _choice(axis: str, name: str) -> Choice:
    """Look up a name; one that no table of the paper has stands for itself."""
    record = {axis: name} if axis == "dataset" else {}
    return NAMED[axis].get(name) or Choice(name, name, {axis: name}, record)


def _attacks(record: Record) -> list[str]:
    # A run that failed says what it was to be attacked by.
    names = record.get("accuracy") or record.get("config", {}).get("attacks") or {}
    return [name for name in names if name != CLEAN]


def _choices(record: Record) -> Iterator[tuple[str, Choice]]:
    """Values of a record by axis; no model for a known flow with options that no table knows.

    Under its name, that would pass for the flow itself.
    """
    yield "dataset", _choice("dataset", str(record["dataset"]))
    yield from (("attack", _choice("attack", name)) for name in _attacks(record))
    known, model, flow = NAMED["model"].values(), record["model"], record.get("flow")
    if matches := [entry for entry in known if has_values(record, entry.record)]:
        yield "model", matches[0]
    elif model != "graph_pde":
        yield "model", replace(_choice("model", model), record={"model": model})
    elif all(entry.record.get("flow") != flow for entry in known):
        name = f"{model} {flow}" if flow in MODELS else str(flow)  # it may be called as a model is
        yield "model", Choice(name, name, {"model": name}, {"model": model, "flow": flow})
