"""Cost against accuracy: what robustness costs in seconds, or in evaluations of the flow."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from robust_diffusion.paper.axes import SOLVERS, label_of
from robust_diffusion.paper.cells import CLEAN
from robust_diffusion.paper.entry import Entry, Run
from robust_diffusion.paper.page.charts.axis import linear_axis, log_axis
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
from robust_diffusion.paper.page.charts.svg import MARKERS, add, line, marker, text, whisker
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.results.numbers import spread

RIGHT = WIDTH - 8


@dataclass(frozen=True)
class Point:
    """What one model costs, and what it reaches in its worst attack.

    Args:
        name: Of the model or solver.
        cost: Mean over its seeds, above 0.
        mean: Accuracy in % under the worst attack.
        std: Its standard deviation over seeds.
        worst: That attack.
        seeds: Number of seeds.
    """

    name: str
    cost: float
    mean: float
    std: float | None
    worst: str
    seeds: int


def time_scatter(tables: Sequence[PaperTable]) -> list[Panel]:
    """Training time against robust accuracy, a chart per dataset.

    Args:
        tables: With the axes `dataset`, `attack` and `model`, all under the datasets' own budgets;
            a model of several tables is taken from the first that measured it.
    """
    charts: dict[str, dict[str, Point | None]] = {}
    for table in tables:
        found: dict[tuple[str, str], list[Entry]] = {}
        for _, _, entry in table:
            keys = entry.line.keys
            found.setdefault((keys["dataset"], keys["model"]), []).append(entry)
        for (dataset, model), entries in found.items():
            points = charts.setdefault(dataset, {})
            # One after the other, so that a model keeps the place and colour of its first table.
            points[model] = points.get(model) or _point(
                label_of("model", model), entries, _train_seconds
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
    groups: dict[tuple[str, str], list[Entry]] = {}
    for _, _, entry in table:
        keys = entry.line.keys
        groups.setdefault((keys["solver"], keys["tau"]), []).append(entry)
    points = []
    for (solver, tau), entries in groups.items():
        name = SOLVERS[solver] + ("" if tau == "-" else f" τ={tau}")
        points.append(_point(name, entries, _evaluations))
    dataset = label_of("dataset", table.layout.fixed.keys["dataset"])
    return [
        _chart(
            f"nfe-{table.layout.experiment}",
            f"{dataset}, Beltrami by solver",
            points,
            "evaluations of the flow in a forward pass, log scale",
        )
    ]


def _train_seconds(run: Run) -> object:
    return run.record.get("seconds", {}).get("train")


def _evaluations(run: Run) -> object:
    return run.record.get("nfe")


def _point(name: str, entries: Iterable[Entry], cost: Callable[[Run], object]) -> Point | None:
    """The point of a model, if it was attacked and its cost is known."""
    attacked = [e for e in entries if e.graph != CLEAN and e.mean is not None]
    if not attacked:
        return None
    worst = min(attacked, key=lambda e: e.mean or 0.0)
    costs = [found for run in worst.runs if isinstance(found := cost(run), int | float)]
    if not costs or min(costs) <= 0:
        return None
    assert worst.mean is not None
    return Point(name, statistics.fmean(costs), worst.mean, worst.std, worst.graph, worst.n)


def _chart(identity: str, title: str, found: Sequence[Point | None], label: str) -> Panel:
    points = [(series, point) for series, point in enumerate(found) if point is not None]
    if not points:
        return Panel(title, note="not run")
    unit = label.partition(",")[0]
    described = "; ".join(f"{p.name}: {p.cost:.4g}, {p.mean:.1f} %" for _, p in points)
    root = new_chart(
        identity, f"{title}: {unit} against robust accuracy", f"{unit}, accuracy: {described}."
    )
    bottom = HEIGHT - BOTTOM
    reached = [p.mean + side * (p.std or 0) for _, p in points for side in (-1, 1)]
    y = linear_axis(reached, start=bottom, end=TOP, at_least=0, at_most=100)
    x = log_axis((p.cost for _, p in points), start=LEFT + 8, end=RIGHT - 8)
    draw_y_axis(root, y, "accuracy under the worst attack [%]", RIGHT)
    draw_x_axis(root, x, label)
    labels = Labels(LEFT + 2, RIGHT + 8, TOP - 6, bottom)
    places = [(x(p.cost), y(p.mean)) for _, p in points]
    for place, (_, point) in zip(places, points, strict=True):
        reach = abs(y(point.mean) - y.clamped(point.mean + (point.std or 0)))
        labels.occupy(place[0] - 6, place[1] - 6, 12, 12)
        # A label may rather cross a whisker than lie far off.
        labels.occupy(place[0] - 1.5, place[1] - reach, 3, 2 * reach)
    for (left, top), (series, point) in zip(places, points, strict=True):
        details = f"{point.name}\nworst attack ({point.worst}): {spread(point.mean, point.std, 2)}"
        details += f"\n{unit}: {point.cost:.4g}\nseeds: {point.seeds}"
        kind = f"s{series % len(MARKERS)}" + (" hollow" if series >= len(MARKERS) else "")
        mark = add(root, "g", class_=f"mark {kind}", data_details=details)
        if point.std:
            low, high = (y.clamped(point.mean + side * point.std) for side in (-1, 1))
            whisker(mark, left, low, high)
        marker(mark, series, left, top)
        label_x, label_y, far = labels.place(point.name, left, top)
        if far:
            line(mark, left, top, label_x + 3.4 * len(point.name), label_y - 4, "leader")
        text(mark, label_x, label_y, point.name, class_="label")
    missing = len(found) - len(points)
    return finish(root, title, f"{missing} not run, or without a measured cost" if missing else "")
