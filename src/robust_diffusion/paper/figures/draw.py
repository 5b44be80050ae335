"""Panels side by side: nodes coloured by class, edges darker the larger their weight."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy import ndarray

COLOURS = (
    "#cc6677",
    "#332288",
    "#ddcc77",
    "#117733",
    "#88ccee",
    "#882255",
    "#44aa99",
    "#999933",
    "#aa4499",
)
"""Paul Tol's muted scheme: told apart by any colour vision, and none is grey as edges are."""

MARKERS = ("o", "^", "s")
"""Where there are more classes than colours, the shape tells them apart."""

DARKNESS: Colormap = LinearSegmentedColormap.from_list(
    "darkness", [(0, "#f2f2f2"), (0.5, "#c4c4c4"), (0.8, "#7a7a7a"), (1, "#000000")]
)

STYLE: dict[Any, object] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "svg.fonttype": "none",
    "svg.hashsalt": "robust_diffusion",  # ids of an SVG's parts, the same each time
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class Panel:
    """One picture of a graph.

    Args:
        title: Stands above it.
        note: One line below it.
        position: Where each node is, within -1 and 1.
        label: Class of each node.
        ends: Two nodes per edge.
        weight: Weight of each edge, at least 0.
    """

    title: str
    note: str
    position: Float[ndarray, "n 2"]
    label: Int[ndarray, " n"]
    ends: Int[ndarray, "e 2"]
    weight: Float[ndarray, " e"]


SIZE, GAP, MARGIN = 2.45, 0.1, 0.08
TOP, BOTTOM, RIGHT = 0.27, 0.62, 0.62
"""Layout in inches: a panel, between panels, at the left; for titles, the legend, the scale."""


def draw_panels(panels: Sequence[Panel], weight_name: str, *, warning: str = "") -> Figure:
    """Draw panels in a row, with one scale of darkness and one legend for all.

    An edge is as dark as the share of all edges, of all panels, that weigh less: equal weights are
    equally dark wherever they are, so that panels can be compared, and no few large weights leave
    the others white.

    Args:
        panels: At least one; all of the same classes.
        weight_name: What the scale of darkness shows.
        warning: Stands in a corner, in red.
    """
    width = MARGIN + len(panels) * (SIZE + GAP) + RIGHT
    height = TOP + SIZE + BOTTOM
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), dpi=100)
        scale = _Darkness([panel.weight for panel in panels])
        classes = sorted({int(c) for panel in panels for c in np.unique(panel.label)})
        left = MARGIN
        for panel in panels:
            axis = figure.add_axes(_place(figure, left, BOTTOM, SIZE, SIZE))
            _draw(axis, panel, scale, classes)
            left += SIZE + GAP
        bar = figure.add_axes(_place(figure, left + 0.02, BOTTOM, 0.1, SIZE))
        _colour_bar(bar, scale, weight_name)
        _legend(figure, classes)
        if warning:
            figure.text(0.99, 0.01, warning, color="#b00020", fontsize=7, ha="right", va="bottom")
    return figure


def _place(
    figure: Figure, left: float, bottom: float, width: float, height: float
) -> tuple[float, float, float, float]:
    """Inches as shares of the figure."""
    whole_width, whole_height = figure.get_size_inches()
    return left / whole_width, bottom / whole_height, width / whole_width, height / whole_height


class _Darkness:
    """Weights to 0..1: the share of all weights that are smaller, ties half."""

    def __init__(self, weights: Sequence[Float[ndarray, " _"]]) -> None:
        pooled = np.concatenate(weights)
        self.ordered = np.sort(pooled) if pooled.size else np.zeros(1)

    def __call__(self, weight: Float[ndarray, " e"]) -> Float[ndarray, " e"]:
        below = np.searchsorted(self.ordered, weight, "left")
        up_to = np.searchsorted(self.ordered, weight, "right")
        return (below + up_to) / (2 * self.ordered.size)


def _draw(axis: Axes, panel: Panel, scale: _Darkness, classes: Sequence[int]) -> None:
    darkness = scale(panel.weight)
    order = np.argsort(darkness, kind="stable")  # the dark ones on top
    axis.add_collection(
        LineCollection(
            list(panel.position[panel.ends[order]]),
            colors=DARKNESS(darkness[order]),
            linewidths=0.2 + 0.4 * darkness[order] ** 2,
            zorder=1,
        )
    )
    for index, value in enumerate(classes):
        of_class = panel.position[panel.label == value]
        colour, marker = _look(index)
        axis.scatter(
            of_class[:, 0],
            of_class[:, 1],
            s=_node_size(len(panel.position)),
            c=colour,
            marker=marker,
            linewidths=0.2,
            edgecolors="white",
            zorder=2,
        )
    # Ten thousand lines and nodes as vectors would make a page slow; titles stay text.
    axis.set_rasterization_zorder(2.2)
    axis.set(xlim=(-1.04, 1.04), ylim=(-1.04, 1.04), aspect="equal", xticks=[], yticks=[])
    axis.set_title(panel.title, fontsize=9, pad=4)
    # Not as the axis' label, which would be drawn as pixels with what it lies behind.
    axis.text(0.5, -0.02, panel.note, fontsize=7, ha="center", va="top", transform=axis.transAxes)
    for spine in axis.spines.values():
        spine.set(color="#b0b0b0", linewidth=0.6)


def _colour_bar(place: Axes, scale: _Darkness, name: str) -> None:
    steps = np.linspace(0, 1, 256)[:, None]
    place.imshow(
        steps,
        cmap=DARKNESS,
        norm=Normalize(0, 1),
        aspect="auto",
        origin="lower",
        extent=(0, 1, 0, 1),
    )
    quantiles = (0.0, 0.25, 0.5, 0.75, 1.0)
    values = np.quantile(scale.ordered, quantiles)
    place.set_yticks(quantiles, [_short(value, values[-1]) for value in values], fontsize=6.5)
    place.yaxis.tick_right()
    place.tick_params(length=2, width=0.5, pad=1.5)
    place.set_xticks([])
    place.set_title(name, fontsize=7, pad=5, loc="left")
    for spine in place.spines.values():
        spine.set(color="#b0b0b0", linewidth=0.6)


def _legend(figure: Figure, classes: Sequence[int]) -> None:
    handles = []
    for index, value in enumerate(classes):
        colour, marker = _look(index)
        handles.append(
            Line2D([], [], linestyle="", marker=marker, color=colour, markersize=4.5, label=value)
        )
    figure.legend(
        handles=handles,
        title="class",
        title_fontsize=7,
        loc="lower center",
        ncols=min(len(handles), 15),
        fontsize=7,
        frameon=False,
        handletextpad=0.1,
        columnspacing=1.0,
        borderaxespad=0.1,
        alignment="center",
    )


def _look(index: int) -> tuple[str, str]:
    return COLOURS[index % len(COLOURS)], MARKERS[index // len(COLOURS) % len(MARKERS)]


def _short(value: float, largest: float) -> str:
    """Two digits; what is nothing beside the largest is 0."""
    return "0" if value < largest / 1000 else f"{value:.2g}"


def _node_size(num_nodes: int) -> float:
    return float(np.clip(13_000 / max(num_nodes, 1), 3.0, 20.0))
