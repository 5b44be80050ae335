"""Accuracy against robustness, along the length of the integration period."""

import statistics
from collections.abc import Sequence

from robust_diffusion.evaluation.records import Record, is_timing
from robust_diffusion.paper.axes import label_of
from robust_diffusion.paper.cells import CLEAN, Cell, cells_of, select, value_at
from robust_diffusion.paper.layout import Line
from robust_diffusion.paper.page.charts.axis import linear_axis
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
from robust_diffusion.paper.page.charts.labels import Labels
from robust_diffusion.paper.page.charts.svg import add, marker, points, text

EXPERIMENT = "t-end"
RIGHT = WIDTH - 14

Curves = dict[str, dict[float | None, list[tuple[float, float]]]]
"""Label -> end of the period, if it has one -> per seed clean and attacked accuracy in %."""


def period_curves(records: Sequence[Record], *, scale: str, fidelity: str) -> list[Panel]:
    """A chart per dataset and attack; none without records of `t-end`.

    Each flow is a curve, and a network that has no period, such as the MLP, a point beside them.

    Args:
        records: In the order in which they were appended.
        scale: full or smoke.
        fidelity: paper or released.
    """
    measured: dict[tuple[str, str, str, float | None], list[Cell]] = {}
    for cell in cells_of(records, experiment=EXPERIMENT, scale=scale, fidelity=fidelity):
        if cell.finished and not is_timing(cell.record):
            for attack in cell.record["accuracy"].keys() - {CLEAN}:
                key = (cell.record["dataset"], attack, _label(cell.record), _period(cell.record))
                measured.setdefault(key, []).append(cell)
    charts: dict[tuple[str, str], Curves] = {}
    for (dataset, attack, label, period), cells in measured.items():
        # One setting of each point, and each seed once.
        chosen = select(cells, Line(), attack).finished.values()
        shares = [cell.record["accuracy"] for cell in chosen]
        pairs = [(100 * share[CLEAN], 100 * share[attack]) for share in shares]
        charts.setdefault((dataset, attack), {}).setdefault(label, {})[period] = pairs
    return [_chart(dataset, attack, curves) for (dataset, attack), curves in sorted(charts.items())]


def _period(record: Record) -> float | None:
    t_end = value_at(record, "config.model.flow.t_end")
    return float(t_end) if isinstance(t_end, int | float) else None


def _chart(dataset: str, attack: str, accuracies: Curves) -> Panel:
    title = f"{label_of('dataset', dataset)}, {label_of('attack', attack)}"
    curves = {label: _means(periods) for label, periods in sorted(accuracies.items())}
    described = "; ".join(
        f"{label}: " + ", ".join(f"{_at(t)}{c:.1f} / {a:.1f}" for t, c, a, _ in curve)
        for label, curve in curves.items()
    )
    root = new_chart(
        f"t-end-{dataset}-{attack}",
        f"Clean against attacked accuracy over the integration period: {title}",
        f"Clean and attacked accuracy in %. {described}.",
    )
    bottom = HEIGHT - BOTTOM
    every = [point for curve in curves.values() for point in curve]
    x = linear_axis([c for _, c, _, _ in every], start=LEFT + 8, end=RIGHT, at_least=0, at_most=100)
    y = linear_axis([a for _, _, a, _ in every], start=bottom, end=TOP, at_least=0, at_most=100)
    draw_y_axis(root, y, "accuracy under attack [%]", RIGHT)
    draw_x_axis(root, x, "accuracy on the clean graph [%]")
    labels = Labels(LEFT + 2, RIGHT + 12, TOP - 6, bottom)
    for _, clean, attacked, _ in every:
        labels.occupy(x(clean) - 5, y(attacked) - 5, 10, 10)
    for series, (name, curve) in enumerate(curves.items()):
        group = add(root, "g", class_=f"s{series % 8} line")
        places = [(x(clean), y(attacked)) for _, clean, attacked, _ in curve]
        add(group, "polyline", points=points(places), class_="path")
        for k, ((t_end, clean, attacked, seeds), place) in enumerate(
            zip(curve, places, strict=True)
        ):
            shown = name if t_end is None else f"{name}, T={t_end:g}"
            details = f"{shown}\nclean: {clean:.2f}\nattacked: {attacked:.2f}"
            mark = add(group, "g", class_="mark", data_details=f"{details}\nseeds: {seeds}")
            marker(mark, series, *place)
            label = shown if k == len(curve) - 1 else f"{t_end:g}"
            label_x, label_y, _ = labels.place(label, *place)
            text(mark, label_x, label_y, label, class_="label")
    return finish(root, title)


def _means(
    periods: dict[float | None, list[tuple[float, float]]],
) -> list[tuple[float | None, float, float, int]]:
    return [
        (
            t_end,
            statistics.fmean(clean for clean, _ in pairs),
            statistics.fmean(attacked for _, attacked in pairs),
            len(pairs),
        )
        for t_end, pairs in sorted(periods.items(), key=lambda item: (item[0] is None, item[0]))
    ]


def _at(t_end: float | None) -> str:
    return "" if t_end is None else f"T={t_end:g} "


def _label(record: Record) -> str:
    name = str(record["flow"] if record["model"] == "graph_pde" else record["model"])
    return label_of("model", name)
