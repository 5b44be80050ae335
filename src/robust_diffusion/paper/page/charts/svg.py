"""SVG elements; text and attributes are escaped when they are written."""

from typing import Any
from xml.etree.ElementTree import Element, SubElement

MARKERS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",  # disc
    "M-3.6-3.6H3.6V3.6H-3.6Z",  # square
    "M0-4.8L4.5 3.4H-4.5Z",  # triangle
    "M0-5L4.6 0L0 5L-4.6 0Z",  # diamond
    "M0 4.8L4.5-3.4H-4.5Z",  # triangle, upside down
    "M-1.6-4.6H1.6V-1.6H4.6V1.6H1.6V4.6H-1.6V1.6H-4.6V-1.6H-1.6Z",  # cross
    "M0-5L1.5-1.7L4.9-1.5L2.3 .8L3.1 4.2L0 2.3L-3.1 4.2L-2.3 .8L-4.9-1.5L-1.5-1.7Z",  # star
    "M-4.6-2.2H4.6V2.2H-4.6Z",  # bar
)
"""Shapes that tell series apart without their colours."""


def add(parent: Element, tag: str, text: str = "", **attributes: Any) -> Element:
    """Append an element; in names of attributes `_` stands for `-`, and `class_` for `class`."""
    named = {key.rstrip("_").replace("_", "-"): _text(v) for key, v in attributes.items()}
    child = SubElement(parent, tag, named)
    child.text = text or None
    return child


def line(parent: Element, x1: float, y1: float, x2: float, y2: float, class_: str) -> None:
    """Append a straight line."""
    add(parent, "line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def text(
    parent: Element, x: float, y: float, content: str, *, class_: str, anchor: str = "start"
) -> None:
    """Append one line of text with its baseline at y."""
    add(parent, "text", content, x=x, y=y, text_anchor=anchor, class_=class_)


def whisker(parent: Element, x: float, low: float, high: float, reach: float = 3) -> None:
    """Append an upright error bar with caps of twice the reach."""
    path = f"M{_text(x - reach)} {_text(low)}h{_text(2 * reach)}M{_text(x)} {_text(low)}"
    path += f"V{_text(high)}m{_text(-reach)} 0h{_text(2 * reach)}"
    add(parent, "path", d=path, class_="whisker")


def marker(parent: Element, series: int, x: float, y: float) -> None:
    """Append the shape of a series."""
    shape = MARKERS[series % len(MARKERS)]
    add(parent, "path", d=shape, transform=f"translate({_text(x)} {_text(y)})", class_="marker")


def polyline(parent: Element, places: list[tuple[float, float]]) -> None:
    """Append a line through several places."""
    points = " ".join(f"{_text(x)},{_text(y)}" for x, y in places)
    add(parent, "polyline", points=points, class_="path")


def _text(value: Any) -> str:
    # Two decimals are finer than any screen.
    return f"{round(value, 2) + 0.0:g}" if isinstance(value, float) else str(value)
