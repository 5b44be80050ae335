"""Graphs side by side, edges darker the larger their weight, and figures as files."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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

from robust_diffusion.paper.figures.looks import COLOURS, MARKERS
from robust_diffusion.system.files import write_whole

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

FORMATS: Mapping[str, dict[str, Any]] = {
    # Without dates, so that the same figure is the same file.
    "pdf": {"dpi": 300, "metadata": {"CreationDate": None}},
    "png": {"dpi": 200, "metadata": {"Software": None}},
    "svg": {"dpi": 170, "metadata": {"Date": None}},
}
"""Files of a figure: PDF and PNG for papers, SVG for pages."""

SIZE, GAP, MARGIN = 2.45, 0.1, 0.08
TOP, BOTTOM, RIGHT = 0.27, 0.62, 0.62
"""Layout in inches: panel, gap, left margin; room for titles, legend and colour bar."""


@dataclass(frozen=True)
class Panel:
    """Graph with positions of nodes within -1 and 1, classes, and weights of edges, at least 0."""

    title: str
    note: str
    position: Float[ndarray, "n 2"]
    label: Int[ndarray, " n"]
    ends: Int[ndarray, "e 2"]
    weight: Float[ndarray, " e"]


def draw_panels(panels: Sequence[Panel], weight_name: str, *, smoke: bool = False) -> Figure:
    """Panels in a row, with one scale of darkness and one legend for all.

    An edge is as dark as the share of all edges, of all panels, that weigh less: equal weights are
    equally dark in every panel, and no few large weights leave the others white.
    """
    with rc_context(STYLE):
        width = MARGIN + len(panels) * (SIZE + GAP) + RIGHT
        height = TOP + SIZE + BOTTOM
        figure = Figure(figsize=(width, height), dpi=100)

        def add_axes(left: float, width_: float) -> Axes:
            """Axes of the panels' height, in inches."""
            place = (left / width, BOTTOM / height, width_ / width, SIZE / height)
            axes = figure.add_axes(place)
            for spine in axes.spines.values():
                spine.set(color="#b0b0b0", linewidth=0.6)
            return axes

        ordered = np.sort(np.concatenate([panel.weight for panel in panels]))
        classes = sorted({int(c) for panel in panels for c in np.unique(panel.label)})
        left = MARGIN
        for panel in panels:
            _draw(add_axes(left, SIZE), panel, ordered, classes)
            left += SIZE + GAP
        _colour_bar(add_axes(left + 0.02, 0.1), ordered, weight_name)
        _legend(figure, classes)
        if smoke:
            mark_smoke_run(figure)
    return figure


def mark_smoke_run(figure: Figure) -> None:
    """Say in a corner, in red, that a figure shows nothing."""
    text = "smoke run: says nothing about the paper"
    figure.text(0.99, 0.01, text, color="#b00020", fontsize=7, ha="right", va="bottom")


def write_figure(
    figure: Figure, directory: str | Path, stem: str, description: Mapping[str, Any]
) -> list[Path]:
    """Write a figure in every format, and its description to `<stem>.json`."""
    contents = {f"{stem}.{form}": render(figure, form) for form in FORMATS}
    about = {**description, "files": {form: f"{stem}.{form}" for form in FORMATS}}
    text = json.dumps(about, indent=2, sort_keys=True, allow_nan=False)
    contents[f"{stem}.json"] = f"{text}\n".encode()
    return [
        write_whole(Path(directory) / name, content, option="--directory")
        for name, content in contents.items()
    ]


def render(figure: Figure, form: str) -> bytes:
    """A figure as the bytes of a pdf, png or svg file."""
    buffer = io.BytesIO()
    with rc_context(STYLE):
        figure.savefig(buffer, format=form, **FORMATS[form])
    return buffer.getvalue()


def _draw(axis: Axes, panel: Panel, ordered: Float[ndarray, " _"], classes: Sequence[int]) -> None:
    # The share of all weights that are smaller, ties half.
    below = np.searchsorted(ordered, panel.weight, "left")
    up_to = np.searchsorted(ordered, panel.weight, "right")
    darkness = (below + up_to) / (2 * ordered.size)
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
            s=float(np.clip(13_000 / max(len(panel.position), 1), 3.0, 20.0)),
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


def _colour_bar(place: Axes, ordered: Float[ndarray, " _"], name: str) -> None:
    place.imshow(
        np.linspace(0, 1, 256)[:, None],
        cmap=DARKNESS,
        norm=Normalize(0, 1),
        aspect="auto",
        origin="lower",
        extent=(0, 1, 0, 1),
    )
    quantiles = (0.0, 0.25, 0.5, 0.75, 1.0)
    values = np.quantile(ordered, quantiles)
    place.set_yticks(quantiles, [_short(value, values[-1]) for value in values], fontsize=6.5)
    place.yaxis.tick_right()
    place.tick_params(length=2, width=0.5, pad=1.5)
    place.set_xticks([])
    place.set_title(name, fontsize=7, pad=5, loc="left")


def _legend(figure: Figure, classes: Sequence[int]) -> None:
    looks = [(value, *_look(index)) for index, value in enumerate(classes)]
    handles = [
        Line2D([], [], linestyle="", marker=marker, color=colour, markersize=4.5, label=value)
        for value, colour, marker in looks
    ]
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
    """A number to two digits; one that is negligible beside the largest is 0."""
    return "0" if value < largest / 1000 else f"{value:.2g}"
