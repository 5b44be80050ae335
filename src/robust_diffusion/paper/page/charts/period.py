"""Clean against attacked accuracy along the length of the integration period."""

from collections import defaultdict
from statistics import fmean

from robust_diffusion.evaluation.records import Record, is_timing
from robust_diffusion.paper.axes import label_of
from robust_diffusion.paper.page.charts.axis import linear_axis
from robust_diffusion.paper.page.charts.chart import (
    BASE,
    LEFT,
    TOP,
    WIDTH,
    Chart,
    Panel,
    percent_axis,
)
from robust_diffusion.paper.page.charts.labels import Labels
from robust_diffusion.paper.page.charts.svg import add, marker, polyline, text
from robust_diffusion.results.cells import CLEAN, Cell, RecordSet, select, value_at

EXPERIMENT = "t-end"
RIGHT = WIDTH - 14

Point = tuple[float | None, float, float, int]
"""End of the period, if there is one; mean clean and attacked accuracy in %; number of seeds."""


def period_curves(records: RecordSet) -> list[Panel]:
    """A chart per dataset and attack of the experiment `t-end`; none without its records.

    Each flow is a curve. A network without a period, such as the MLP, is a single point.
    """
    measured: dict[tuple[str, str, str, float | None], list[Cell]] = defaultdict(list)
    for cell in records.cells(EXPERIMENT):
        if cell.finished and not is_timing(cell.record):
            for attack in cell.record["accuracy"].keys() - {CLEAN}:
                key = (cell.record["dataset"], attack, _label(cell.record), _t_end(cell.record))
                measured[key].append(cell)
    charts: dict[tuple[str, str], dict[str, list[Point]]] = {}
    for (dataset, attack, label, t_end), cells in measured.items():
        # One setting of each point, and each seed once.
        chosen = select(cells, {}, attack).finished.values()
        clean, attacked = (
            fmean(100 * cell.record["accuracy"][graph] for cell in chosen)
            for graph in (CLEAN, attack)
        )
        curves = charts.setdefault((dataset, attack), {})
        curves.setdefault(label, []).append((t_end, clean, attacked, len(chosen)))
    return [_chart(dataset, attack, curves) for (dataset, attack), curves in sorted(charts.items())]


def _chart(dataset: str, attack: str, found: dict[str, list[Point]]) -> Panel:
    title = f"{label_of('dataset', dataset)}, {label_of('attack', attack)}"
    curves = {
        label: sorted(points, key=lambda point: (point[0] is None, point[0]))
        for label, points in sorted(found.items())
    }
    described = "; ".join(
        f"{label}: "
        + ", ".join(
            f"{'' if t_end is None else f'T={t_end:g} '}{clean:.1f} / {attacked:.1f}"
            for t_end, clean, attacked, _ in curve
        )
        for label, curve in curves.items()
    )
    every = [point for curve in curves.values() for point in curve]
    chart = Chart(
        f"t-end-{dataset}-{attack}",
        f"Clean against attacked accuracy over the integration period: {title}",
        f"Clean and attacked accuracy in %. {described}.",
        percent_axis(attacked for _, _, attacked, _ in every),
        "accuracy under attack [%]",
        RIGHT,
    )
    cleans = [clean for _, clean, _, _ in every]
    x = linear_axis(cleans, start=LEFT + 8, end=RIGHT, at_least=0, at_most=100)
    chart.draw_x_axis(x, "accuracy on the clean graph [%]")
    labels = Labels(LEFT + 2, RIGHT + 12, TOP - 6, BASE)
    for _, clean, attacked, _ in every:
        labels.occupy(x(clean) - 5, chart.y(attacked) - 5, 10, 10)
    for series, (name, curve) in enumerate(curves.items()):
        group = add(chart.root, "g", class_=f"s{series % 8} line")
        places = [(x(clean), chart.y(attacked)) for _, clean, attacked, _ in curve]
        polyline(group, places)
        for (t_end, clean, attacked, seeds), place in zip(curve, places, strict=True):
            shown = name if t_end is None else f"{name}, T={t_end:g}"
            details = f"{shown}\nclean: {clean:.2f}\nattacked: {attacked:.2f}\nseeds: {seeds}"
            mark = add(group, "g", class_="mark", data_details=details)
            marker(mark, series, *place)
            label = shown if place is places[-1] else f"{t_end:g}"
            text(mark, *labels.place(label, *place)[:2], label, class_="label")
    return chart.panel(title)


def _t_end(record: Record) -> float | None:
    t_end = value_at(record, "config.model.flow.t_end")
    return float(t_end) if isinstance(t_end, int | float) else None


def _label(record: Record) -> str:
    name = str(record["flow"] if record["model"] == "graph_pde" else record["model"])
    return label_of("model", name)
