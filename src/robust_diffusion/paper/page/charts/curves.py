"""Accuracy against budget: a chart per dataset and attack, a curve per model."""

from collections.abc import Sequence

from robust_diffusion.paper.axes import label_of
from robust_diffusion.paper.page.charts.axis import Axis
from robust_diffusion.paper.page.charts.chart import (
    BASE,
    LEFT,
    TOP,
    WIDTH,
    Chart,
    Panel,
    by_axes,
    percent_axis,
)
from robust_diffusion.paper.page.charts.labels import spread_out
from robust_diffusion.paper.page.charts.svg import add, line, marker, polyline, text
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.results.entry import Entry
from robust_diffusion.results.numbers import spread

RIGHT = WIDTH - 92
DODGE = 2.2
"""Distance between the error bars of neighbouring models."""


def budget_curves(table: PaperTable) -> list[Panel]:
    """Charts of a table with the axes `dataset`, `attack`, `injected` and `model`."""
    every = [entry for _, _, entry in table]
    reached = [
        entry.mean + side * (entry.std or 0)
        for entry in every
        if entry.mean is not None
        for side in (-1, 1)
    ]
    # One scale for all charts of a table, so that they can be compared.
    y = percent_axis(reached) if reached else None
    return [
        _chart(table.layout.experiment, dataset, attack, entries, y)
        for (dataset, attack), entries in by_axes(every, "dataset", "attack").items()
    ]


def _chart(
    experiment: str, dataset: str, attack: str, entries: Sequence[Entry], y: Axis | None
) -> Panel:
    title = f"{label_of('dataset', dataset)}, {label_of('attack', attack)}"
    known = {
        label_of("model", model): sorted((e for e in own if e.mean is not None), key=_budget)
        for (model,), own in by_axes(entries, "model").items()
    }
    if y is None or not any(known.values()):
        return Panel(title, note="not run")
    described = "; ".join(
        f"{model}: " + ", ".join(f"{e.mean:.1f} at {_budget(e)}" for e in own)
        for model, own in known.items()
        if own
    )
    chart = Chart(
        f"curve-{experiment}-{title.replace(', ', '-')}".lower().replace(" ", "-"),
        f"Accuracy against budget: {title}",
        f"Accuracy in % by number of injected nodes. {described}.",
        y,
        "accuracy [%]",
        RIGHT,
    )
    budgets = sorted(set(map(_budget, entries)))
    x = Axis(min(budgets), max(budgets), LEFT + 12, RIGHT - 12, tuple(map(float, budgets)))
    chart.draw_x_axis(x, "injected nodes, each with as many edges")
    ends = []
    for series, (model, own) in enumerate(known.items()):
        if own:
            shift = (series - (len(known) - 1) / 2) * DODGE
            ends.append((series, model, *_draw_curve(chart, series, model, own, x, shift)))
    places = spread_out([y for *_, y in ends], 13, TOP, BASE)
    for (series, model, end_x, end_y), place in zip(ends, places, strict=True):
        group = add(chart.root, "g", class_=f"s{series}")
        line(group, end_x + 6, end_y, RIGHT + 4, place, "leader")
        text(group, RIGHT + 8, place + 4, model, class_="label")
    missing = [model for model, own in known.items() if not own]
    return chart.panel(title, f"not run: {', '.join(missing)}" if missing else "")


def _draw_curve(
    chart: Chart, series: int, model: str, entries: Sequence[Entry], x: Axis, shift: float
) -> tuple[float, float]:
    """Draw the curve of one model, and return its last point."""
    group = add(chart.root, "g", class_=f"s{series} line" + (" main" if series == 0 else ""))
    means = [entry.mean or 0.0 for entry in entries]
    places = [
        (x(_budget(e)) + shift, chart.y(mean)) for e, mean in zip(entries, means, strict=True)
    ]
    polyline(group, places)
    for entry, mean, place in zip(entries, means, places, strict=True):
        details = f"{model}, {_budget(entry)} nodes\n"
        details += f"here: {spread(mean, entry.std, 2)}\nseeds: {entry.n}\n"
        details += f"paper: {spread(entry.reported.mean, entry.reported.std, 2)}"
        mark = add(group, "g", class_="mark", data_details=details)
        chart.draw_std(mark, place[0], mean, entry.std, 2.5)
        marker(mark, series, *place)
    return places[-1]


def _budget(entry: Entry) -> int:
    injected = entry.keys["injected"]
    return 0 if injected == "clean" else int(injected)
