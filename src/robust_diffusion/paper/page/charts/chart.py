"""A chart's frame: title, description, axes with units; panels and groups of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree.ElementTree import Element, tostring

from robust_diffusion.paper.page.charts.axis import Axis, linear_axis
from robust_diffusion.paper.page.charts.svg import add, line, text, whisker
from robust_diffusion.results.entry import Entry

WIDTH, HEIGHT = 380, 292
LEFT, TOP = 36, 28
BASE = HEIGHT - 44
"""Edges of the plot; the right one is each chart's own, and BASE is where x axes lie."""


@dataclass(frozen=True)
class Panel:
    """A titled chart, or a note on why there is none; else the note names missing results."""

    title: str
    svg: str | None = None
    note: str = ""


@dataclass(frozen=True)
class ChartGroup:
    """Charts under a common heading.

    The legend holds class and name of each series without a label of its own; `tables` are the
    numbers of the tables with the same results.
    """

    id: str
    title: str
    about: str
    panels: list[Panel]
    legend: tuple[tuple[str, str], ...] = ()
    tables: tuple[int, ...] = ()

    @property
    def drawn(self) -> list[Panel]:
        """Panels with a chart."""
        return [panel for panel in self.panels if panel.svg]

    @property
    def notes(self) -> list[str]:
        """Notes of the panels without a chart."""
        return [f"{panel.title}: {panel.note}" for panel in self.panels if not panel.svg]


class Chart:
    """An SVG chart with a vertical axis.

    Args:
        identity: Prefix of its ids, unique on the page.
        title: Accessible title.
        description: Its numbers as text, for screen readers.
        y: Vertical axis.
        y_label: Name of the vertical axis, with the unit.
        right: Right edge of the plot.
    """

    def __init__(
        self, identity: str, title: str, description: str, y: Axis, y_label: str, right: float
    ) -> None:
        labels = f"{identity}-title {identity}-desc"
        self.root = Element("svg", {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img"})
        self.root.attrib |= {"aria-labelledby": labels, "class": "chart"}
        self.y = y
        add(self.root, "title", title, id=f"{identity}-title")
        add(self.root, "desc", description, id=f"{identity}-desc")
        for tick in y.ticks:
            line(self.root, LEFT, y(tick), right, y(tick), "gridline")
            text(self.root, LEFT - 6, y(tick) + 4, f"{tick:g}", anchor="end", class_="tick")
        text(self.root, 2, 14, y_label, class_="axis-label")

    def draw_x_axis(self, axis: Axis, label: str) -> None:
        """Draw a horizontal axis with its ticks, and its label in the middle."""
        line(self.root, axis.start, BASE, axis.end, BASE, "axis")
        previous = -1e9
        for tick in axis.ticks:
            place = axis(tick)
            line(self.root, place, BASE, place, BASE + 4, "axis")
            # Every number needs about 7 units per digit.
            if place - previous >= 7 * len(f"{tick:g}") + 6:
                text(self.root, place, BASE + 17, f"{tick:g}", anchor="middle", class_="tick")
                previous = place
        middle = (axis.start + axis.end) / 2
        text(self.root, middle, HEIGHT - 7, label, anchor="middle", class_="axis-label")

    def draw_std(
        self, mark: Element, x: float, mean: float, std: float | None, reach: float = 3
    ) -> None:
        """Draw an error bar of one standard deviation, cut off at the ends of the axis."""
        if std:
            whisker(mark, x, self.y.clamped(mean - std), self.y.clamped(mean + std), reach)

    def panel(self, title: str, note: str = "") -> Panel:
        """Finish the chart."""
        return Panel(title, tostring(self.root, encoding="unicode"), note)


def percent_axis(values: Iterable[float]) -> Axis:
    """Vertical axis of percentages, as long as the values need."""
    return linear_axis(values, start=BASE, end=TOP, at_least=0, at_most=100)


def by_axes(entries: Iterable[Entry], *axes: str) -> dict[tuple[str, ...], list[Entry]]:
    """Entries of a table grouped by their values of some axes, in the table's order."""
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        groups.setdefault(tuple(entry.keys[axis] for axis in axes), []).append(entry)
    return groups
