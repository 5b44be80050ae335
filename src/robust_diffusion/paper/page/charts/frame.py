"""What every chart has: title and description, axes with units, room for labels."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from robust_diffusion.paper.page.charts.axis import Axis
from robust_diffusion.paper.page.charts.svg import add, line, text, write

WIDTH, HEIGHT = 380, 292
LEFT, TOP, BOTTOM = 36, 28, 44
"""Margins; the right one is the chart's own."""


@dataclass(frozen=True)
class Panel:
    """One chart.

    Args:
        title: Stands above it.
        svg: The picture; `None` if there is nothing to draw.
        note: What is missing, in one line.
    """

    title: str
    svg: str | None = None
    note: str = ""


@dataclass(frozen=True)
class ChartGroup:
    """Charts that belong together.

    Args:
        id: Anchor on the page.
        title: Heading.
        about: How to read them.
        panels: From left to right.
        legend: Class and name of each series that is not named beside its marks.
        tables: Numbers of the tables that hold the same numbers.
    """

    id: str
    title: str
    about: str
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, str], ...] = ()
    tables: tuple[int, ...] = field(default=())

    @property
    def drawn(self) -> list[Panel]:
        """The panels that show something."""
        return [panel for panel in self.panels if panel.svg]

    @property
    def notes(self) -> list[str]:
        """What the empty panels say."""
        return [f"{panel.title}: {panel.note}" for panel in self.panels if not panel.svg]


def new_chart(identity: str, title: str, description: str) -> Element:
    """An empty chart.

    Args:
        identity: Start of its ids, unique on the page.
        title: Of the picture.
        description: The same in words.
    """
    root = Element(
        "svg",
        {
            "viewBox": f"0 0 {WIDTH} {HEIGHT}",
            "role": "img",
            "aria-labelledby": f"{identity}-title {identity}-desc",
            "class": "chart",
        },
    )
    add(root, "title", title, id=f"{identity}-title")
    add(root, "desc", description, id=f"{identity}-desc")
    return root


def draw_y_axis(root: Element, axis: Axis, label: str, right: float) -> None:
    """Ticks on the left, a faint line for each, and the label above.

    Args:
        root: The chart.
        axis: From bottom to top.
        label: With the unit.
        right: Where the lines end.
    """
    for tick in axis.ticks:
        line(root, LEFT, axis(tick), right, axis(tick), "gridline")
        text(root, LEFT - 6, axis(tick) + 4, f"{tick:g}", anchor="end", class_="tick")
    text(root, 2, 14, label, class_="axis-label")


def draw_x_axis(root: Element, axis: Axis, label: str, ticks: Sequence[float] = ()) -> None:
    """Ticks below, and the label in the middle.

    Args:
        root: The chart.
        axis: From left to right.
        label: With the unit.
        ticks: Other ticks than the axis' own.
    """
    bottom = HEIGHT - BOTTOM
    line(root, axis.start, bottom, axis.end, bottom, "axis")
    previous = -1e9
    for tick in ticks or axis.ticks:
        place = axis(tick)
        line(root, place, bottom, place, bottom + 4, "axis")
        # Every number needs about 7 units per digit.
        if place - previous >= 7 * len(f"{tick:g}") + 6:
            text(root, place, bottom + 17, f"{tick:g}", anchor="middle", class_="tick")
            previous = place
    middle = (axis.start + axis.end) / 2
    text(root, middle, HEIGHT - 7, label, anchor="middle", class_="axis-label")


def finish(root: Element, title: str, note: str = "") -> Panel:
    """The chart as a panel."""
    return Panel(title, write(root), note)
