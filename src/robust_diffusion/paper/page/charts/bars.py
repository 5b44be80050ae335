"""Accuracy of the flows on the clean and the attacked graphs: a bar chart per dataset."""

from collections.abc import Sequence

from robust_diffusion.paper.axes import label_of
from robust_diffusion.paper.page.charts.axis import Axis
from robust_diffusion.paper.page.charts.chart import BASE, LEFT, TOP, WIDTH, Chart, Panel, by_axes
from robust_diffusion.paper.page.charts.svg import add, line, text
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.wording import difference
from robust_diffusion.results.entry import Entry
from robust_diffusion.results.numbers import spread

RIGHT = WIDTH - 6
LEGEND = (
    ("b-clean", "clean"),
    ("b-speit", "SPEIT"),
    ("b-tdgia", "TDGIA"),
    ("b-published", "published in the paper"),
)


def flow_bars(table: PaperTable) -> list[Panel]:
    """Charts of a table with the axes `dataset`, `attack` and `model`."""
    datasets = by_axes((entry for _, _, entry in table), "dataset")
    return [_chart(table, dataset, entries) for (dataset,), entries in datasets.items()]


def _chart(table: PaperTable, dataset: str, entries: Sequence[Entry]) -> Panel:
    # Two tables may show the same dataset in one group of charts.
    title = f"{label_of('dataset', dataset)}, table {table.layout.number}"
    if all(entry.mean is None for entry in entries):
        return Panel(title, note="not run")
    groups = {label_of("model", m): own for (m,), own in by_axes(entries, "model").items()}
    described = "; ".join(
        f"{model}: "
        + ", ".join(f"{label_of('attack', e.graph)} {spread(e.mean, e.std, 1)}" for e in own)
        for model, own in groups.items()
    )
    chart = Chart(
        f"bars-{table.layout.experiment}-{dataset}",
        f"Accuracy per flow: {title}",
        f"Accuracy in %, with the standard deviation over seeds. {described}.",
        Axis(0, 100, BASE, TOP, (0, 20, 40, 60, 80, 100)),
        "accuracy [%]",
        RIGHT,
    )
    width = (RIGHT - LEFT) / len(groups)
    for i, (model, own) in enumerate(groups.items()):
        start, each = LEFT + (i + 0.1) * width, 0.8 * width / len(own)
        for k, entry in enumerate(own):
            _draw_bar(
                chart, entry, model, start + k * each + 1, each - 2, published=not table.smoke
            )
        for k, part in enumerate(_wrapped(model)):
            middle = LEFT + (i + 0.5) * width
            text(chart.root, middle, BASE + 16 + 13 * k, part, anchor="middle", class_="tick")
    line(chart.root, LEFT, BASE, RIGHT, BASE, "axis")
    missing = [
        f"{model} {label_of('attack', entry.graph)}"
        for model, own in groups.items()
        for entry in own
        if entry.mean is None
    ]
    return chart.panel(title, f"no number: {', '.join(missing)}" if missing else "")


def _draw_bar(
    chart: Chart, entry: Entry, model: str, left: float, width: float, *, published: bool
) -> None:
    details = f"{model}, {label_of('attack', entry.graph)}\n"
    details += f"here: {spread(entry.mean, entry.std, 2)}\n"
    details += f"paper: {spread(entry.reported.mean, entry.reported.std, 2)}"
    if entry.difference is not None:
        details += f"\ndifference: {difference(entry, 2)}"
    mark = add(chart.root, "g", class_=f"mark b-{entry.graph}", data_details=details)
    if entry.mean is not None:
        y = chart.y(entry.mean)
        add(mark, "rect", x=left, y=y, width=width, height=BASE - y, rx=1.5, class_="bar")
        chart.draw_std(mark, left + width / 2, entry.mean, entry.std)
    if entry.reported.mean is not None and published:
        y = chart.y(entry.reported.mean)
        for class_ in ("published-halo", "published-tick"):
            line(mark, left - 1, y, left + width + 1, y, class_)


def _wrapped(label: str) -> list[str]:
    """A name in at most two lines."""
    first, slash, second = label.partition("/")
    if not slash:
        first, _, second = label.partition(" ")
    return [first + slash, second] if second else [first]
