"""Robustness bars: per dataset and flow the accuracy on the clean and on the attacked graphs."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from robust_diffusion.paper.axes import label_of
from robust_diffusion.paper.entry import Entry
from robust_diffusion.paper.page.charts.axis import Axis
from robust_diffusion.paper.page.charts.frame import (
    BOTTOM,
    HEIGHT,
    LEFT,
    TOP,
    WIDTH,
    Panel,
    draw_y_axis,
    finish,
    new_chart,
)
from robust_diffusion.paper.page.charts.svg import add, line, text, whisker
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.wording import difference
from robust_diffusion.results.numbers import spread

RIGHT = WIDTH - 6
LEGEND = (
    ("b-clean", "clean"),
    ("b-speit", "SPEIT"),
    ("b-tdgia", "TDGIA"),
    ("b-printed", "printed in the paper"),
)


def flow_bars(table: PaperTable) -> list[Panel]:
    """Charts of a table whose entries have the axes `dataset`, `attack` and `model`.

    Args:
        table: The table.
    """
    charts: dict[str, dict[str, list[Entry]]] = {}
    for _, _, entry in table:
        keys = entry.line.keys
        charts.setdefault(keys["dataset"], {}).setdefault(keys["model"], []).append(entry)
    return [_chart(table, dataset, groups) for dataset, groups in charts.items()]


def _chart(table: PaperTable, dataset: str, groups: dict[str, list[Entry]]) -> Panel:
    # Two tables may show the same dataset in one group of charts.
    title = f"{label_of('dataset', dataset)}, table {table.layout.number}"
    known = [e for entries in groups.values() for e in entries if e.mean is not None]
    if not known:
        return Panel(title, note="not run")
    described = "; ".join(
        f"{label_of('model', model)}: "
        + ", ".join(f"{label_of('attack', e.graph)} {spread(e.mean, e.std, 1)}" for e in entries)
        for model, entries in groups.items()
    )
    root = new_chart(
        f"bars-{table.layout.experiment}-{dataset}",
        f"Accuracy per flow: {title}",
        f"Accuracy in %, with the standard deviation over seeds. {described}.",
    )
    y = Axis(0, 100, HEIGHT - BOTTOM, TOP, (0, 20, 40, 60, 80, 100))
    draw_y_axis(root, y, "accuracy [%]", RIGHT)
    width = (RIGHT - LEFT) / len(groups)
    for i, (model, entries) in enumerate(groups.items()):
        start = LEFT + i * width
        _group(root, entries, start + 0.1 * width, 0.8 * width, y, table)
        for k, part in enumerate(_wrapped(label_of("model", model))):
            middle = start + width / 2
            text(root, middle, y.start + 16 + 13 * k, part, anchor="middle", class_="tick")
    line(root, LEFT, y.start, RIGHT, y.start, "axis")
    missing = [
        f"{label_of('model', model)} {label_of('attack', e.graph)}"
        for model, entries in groups.items()
        for e in entries
        if e.mean is None
    ]
    return finish(root, title, f"no number: {', '.join(missing)}" if missing else "")


def _group(
    root: Element,
    entries: Sequence[Entry],
    start: float,
    width: float,
    y: Axis,
    table: PaperTable,
) -> None:
    each = width / len(entries)
    for i, entry in enumerate(entries):
        left, thick = start + i * each + 1, each - 2
        details = (
            f"{label_of('model', entry.line.keys['model'])}, {label_of('attack', entry.graph)}\n"
        )
        details += f"here: {spread(entry.mean, entry.std, 2)}\n"
        details += f"paper: {spread(entry.printed.mean, entry.printed.std, 2)}"
        if entry.difference is not None:
            details += f"\ndifference: {difference(entry, 2)}"
        mark = add(root, "g", class_=f"mark b-{entry.graph}", data_details=details)
        if entry.mean is not None:
            top = y(entry.mean)
            add(
                mark, "rect", x=left, y=top, width=thick, height=y.start - top, rx=1.5, class_="bar"
            )
            if entry.std:
                low, high = (y.clamped(entry.mean + side * entry.std) for side in (-1, 1))
                whisker(mark, left + thick / 2, low, high)
        if entry.printed.mean is not None and not table.smoke:
            place = y(entry.printed.mean)
            line(mark, left - 1, place, left + thick + 1, place, "printed-halo")
            line(mark, left - 1, place, left + thick + 1, place, "printed-tick")


def _wrapped(label: str) -> list[str]:
    """A name in at most two lines."""
    first, slash, second = label.partition("/")
    if not slash:
        first, _, second = label.partition(" ")
    return [first + slash, second] if second else [first]
