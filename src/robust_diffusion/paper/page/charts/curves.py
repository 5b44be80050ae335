"""Accuracy against budget: one chart per dataset and attack, one line per model."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from robust_diffusion.paper.axes import label_of
from robust_diffusion.paper.entry import Entry
from robust_diffusion.paper.page.charts.axis import Axis, linear_axis, spread_out
from robust_diffusion.paper.page.charts.frame import (
    BOTTOM,
    HEIGHT,
    LEFT,
    TOP,
    WIDTH,
    Panel,
    draw_x_axis,
    draw_y_axis,
    finish,
    new_chart,
)
from robust_diffusion.paper.page.charts.svg import add, line, marker, points, text, whisker
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.results.numbers import spread

RIGHT = WIDTH - 92
DODGE = 2.2
"""Distance between the error bars of neighbouring models."""


def budget_curves(table: PaperTable) -> list[Panel]:
    """Charts of a table whose entries have the axes `dataset`, `attack`, `injected` and `model`.

    Args:
        table: The table.
    """
    charts: dict[tuple[str, str], dict[str, list[Entry]]] = {}
    for _, _, entry in table:
        keys = entry.line.keys
        lines = charts.setdefault((keys["dataset"], keys["attack"]), {})
        lines.setdefault(keys["model"], []).append(entry)
    reached = [
        value
        for _, _, entry in table
        if entry.mean is not None
        for value in (entry.mean - (entry.std or 0), entry.mean + (entry.std or 0))
    ]
    return [
        _chart(table, label_of("dataset", dataset), label_of("attack", attack), lines, reached)
        for (dataset, attack), lines in charts.items()
    ]


def _chart(
    table: PaperTable,
    dataset: str,
    attack: str,
    lines: dict[str, list[Entry]],
    reached: Sequence[float],
) -> Panel:
    title = f"{dataset}, {attack}"
    known = {
        model: sorted((e for e in entries if e.mean is not None), key=_budget)
        for model, entries in lines.items()
    }
    missing = [label_of("model", model) for model, entries in known.items() if not entries]
    if len(missing) == len(known):
        return Panel(title, note="not run")
    described = "; ".join(
        f"{label_of('model', model)}: "
        + ", ".join(f"{e.mean:.1f} at {_budget(e)}" for e in entries)
        for model, entries in known.items()
        if entries
    )
    name = f"{table.layout.experiment}-{dataset}-{attack}".lower().replace(" ", "-")
    root = new_chart(
        f"curve-{name}",
        f"Accuracy against budget: {title}",
        f"Accuracy in % by number of injected nodes. {described}.",
    )
    bottom = HEIGHT - BOTTOM
    # One scale for all charts of a table, so that they can be compared.
    y = linear_axis(reached, start=bottom, end=TOP, at_least=0, at_most=100)
    budgets = sorted({_budget(entry) for entries in lines.values() for entry in entries})
    x = Axis(min(budgets), max(budgets), LEFT + 12, RIGHT - 12, tuple(map(float, budgets)))
    draw_y_axis(root, y, "accuracy [%]", RIGHT)
    draw_x_axis(root, x, "injected nodes, each with as many edges")
    ends = []
    for series, (model, entries) in enumerate(known.items()):
        if entries:
            shift = (series - (len(known) - 1) / 2) * DODGE
            ends.append((series, model, _line(root, series, model, entries, x, y, shift)))
    places = spread_out([end[1] for _, _, end in ends], 13, TOP, bottom)
    for (series, model, (end_x, end_y)), place in zip(ends, places, strict=True):
        group = add(root, "g", class_=f"s{series}")
        line(group, end_x + 6, end_y, RIGHT + 4, place, "leader")
        text(group, RIGHT + 8, place + 4, label_of("model", model), class_="label")
    return finish(root, title, f"not run: {', '.join(missing)}" if missing else "")


def _line(
    root: Element,
    series: int,
    model: str,
    entries: Sequence[Entry],
    x: Axis,
    y: Axis,
    shift: float,
) -> tuple[float, float]:
    """Draw one model, and tell where it ends."""
    group = add(root, "g", class_=f"s{series} line" + (" main" if series == 0 else ""))
    places = [(x(_budget(entry)) + shift, y(entry.mean or 0.0)) for entry in entries]
    add(group, "polyline", points=points(places), class_="path")
    for entry, (left, top) in zip(entries, places, strict=True):
        details = f"{label_of('model', model)}, {_budget(entry)} nodes\n"
        details += f"here: {spread(entry.mean, entry.std, 2)}\nseeds: {entry.n}\n"
        details += f"paper: {spread(entry.printed.mean, entry.printed.std, 2)}"
        mark = add(group, "g", class_="mark", data_details=details)
        if entry.mean is not None and entry.std:
            low, high = (y.clamped(entry.mean + side * entry.std) for side in (-1, 1))
            whisker(mark, left, low, high, 2.5)
        marker(mark, series, left, top)
    return places[-1]


def _budget(entry: Entry) -> int:
    injected = entry.line.keys["injected"]
    return 0 if injected == "clean" else int(injected)
