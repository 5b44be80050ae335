"""Cost against robustness: seconds of training, or evaluations of the flow."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from robust_diffusion.paper.axes import SOLVERS, label_of
from robust_diffusion.paper.page.charts.axis import log_axis
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
from robust_diffusion.paper.page.charts.labels import Labels
from robust_diffusion.paper.page.charts.svg import MARKERS, add, line, marker, text
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.results.cells import CLEAN
from robust_diffusion.results.entry import Entry, Run
from robust_diffusion.results.numbers import spread

RIGHT = WIDTH - 8


@dataclass(frozen=True)
class Point:
    """Mean cost of a model, and its accuracy in % under the strongest attack."""

    name: str
    cost: float
    mean: float
    std: float | None
    attack: str
    seeds: int


def time_scatter(tables: Sequence[PaperTable]) -> list[Panel]:
    """Training time against robust accuracy, a chart per dataset.

    Args:
        tables: With the axes `dataset`, `attack` and `model`, all under the datasets' own budgets;
            a model of several tables is taken from the first that measured it.
    """
    charts: dict[str, dict[str, Point | None]] = {}
    for table in tables:
        groups = by_axes((entry for _, _, entry in table), "dataset", "model")
        for (dataset, model), entries in groups.items():
            points = charts.setdefault(dataset, {})
            # One after the other, so that a model keeps the place and colour of its first table.
            points[model] = points.get(model) or _point(
                label_of("model", model),
                entries,
                lambda run: run.record.get("seconds", {}).get("train"),
            )
    label = "training time [s], log scale"
    return [
        _chart(f"time-{dataset}", label_of("dataset", dataset), list(points.values()), label)
        for dataset, points in charts.items()
    ]


def evaluation_scatter(table: PaperTable) -> list[Panel]:
    """Evaluations of the flow against robust accuracy, per solver and step size.

    Args:
        table: With the axes `solver`, `tau` and `attack`.
    """
    groups = by_axes((entry for _, _, entry in table), "solver", "tau")
    points = [
        _point(
            SOLVERS[solver] + ("" if tau == "-" else f" τ={tau}"),
            entries,
            lambda run: run.record.get("nfe"),
        )
        for (solver, tau), entries in groups.items()
    ]
    title = f"{label_of('dataset', table.layout.fixed.keys['dataset'])}, Beltrami by solver"
    label = "evaluations of the flow in a forward pass, log scale"
    return [_chart(f"nfe-{table.layout.experiment}", title, points, label)]


def _point(name: str, entries: Iterable[Entry], cost: Callable[[Run], object]) -> Point | None:
    """The point of a model that was attacked and whose cost is known."""
    attacked = [(e.mean, e) for e in entries if e.graph != CLEAN and e.mean is not None]
    if not attacked:
        return None
    mean, worst = min(attacked, key=lambda pair: pair[0])
    costs = [found for run in worst.runs if isinstance(found := cost(run), int | float)]
    if not costs or min(costs) <= 0:
        return None
    return Point(name, fmean(costs), mean, worst.std, worst.graph, worst.n)


def _chart(identity: str, title: str, found: Sequence[Point | None], label: str) -> Panel:
    points = [(series, point) for series, point in enumerate(found) if point is not None]
    if not points:
        return Panel(title, note="not run")
    unit = label.partition(",")[0]
    described = "; ".join(f"{p.name}: {p.cost:.4g}, {p.mean:.1f} %" for _, p in points)
    chart = Chart(
        identity,
        f"{title}: {unit} against robust accuracy",
        f"{unit}, accuracy: {described}.",
        percent_axis(p.mean + side * (p.std or 0) for _, p in points for side in (-1, 1)),
        "accuracy under the worst attack [%]",
        RIGHT,
    )
    x, y = log_axis((p.cost for _, p in points), start=LEFT + 8, end=RIGHT - 8), chart.y
    chart.draw_x_axis(x, label)
    labels = Labels(LEFT + 2, RIGHT + 8, TOP - 6, BASE)
    for _, point in points:
        left, top = x(point.cost), y(point.mean)
        reach = abs(top - y.clamped(point.mean + (point.std or 0)))
        labels.occupy(left - 6, top - 6, 12, 12)
        # A label may rather cross a whisker than lie far off.
        labels.occupy(left - 1.5, top - reach, 3, 2 * reach)
    for series, point in points:
        left, top = x(point.cost), y(point.mean)
        details = f"{point.name}\nworst attack ({point.attack}): {spread(point.mean, point.std, 2)}"
        details += f"\n{unit}: {point.cost:.4g}\nseeds: {point.seeds}"
        kind = f"s{series % len(MARKERS)}" + (" hollow" if series >= len(MARKERS) else "")
        mark = add(chart.root, "g", class_=f"mark {kind}", data_details=details)
        chart.draw_std(mark, left, point.mean, point.std)
        marker(mark, series, left, top)
        label_x, label_y, far = labels.place(point.name, left, top)
        if far:
            line(mark, left, top, label_x + 3.4 * len(point.name), label_y - 4, "leader")
        text(mark, label_x, label_y, point.name, class_="label")
    missing = len(found) - len(points)
    note = f"{missing} not run, or without a measured cost" if missing else ""
    return chart.panel(title, note)
