"""Looks of models and graphs; graphs side by side, edges darker the larger their weight; files."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from jaxtyping import Float, Int
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from numpy import ndarray

from robust_diffusion.system.files import write_whole

COLOURS: tuple[str, ...] = ("#cc6677", "#332288", "#b8860b", "#117733", "#4477aa")
COLOURS += ("#882255", "#44aa99", "#999933", "#aa4499")
"""Paul Tol's muted scheme, its pale colours darkened; none is grey as edges are."""

MARKERS = "os^vD<>pXPh*d"


class Look(NamedTuple):
    """Name, marker and colour of a series."""

    label: str
    marker: str
    colour: str

    @property
    def style(self) -> dict[str, Any]:
        """Arguments of Matplotlib for its lines and marks."""
        return {"label": self.label, "marker": self.marker, "color": self.colour}


with Path(__file__).with_name("looks.csv").open(newline="", encoding="utf-8") as _file:
    LOOKS = {row.pop("name"): Look(**row) for row in csv.DictReader(_file)}
"""Models by the option that names them, or their flow, and test graphs by the attack."""

_BY_LABEL = {look.label: look for look in LOOKS.values()}


def look_of(name: str, place: int | None = None) -> Look:
    """Look of a model by its option or its label; one that is not known goes by its own name.

    Its marker and colour follow from the name, or from its `place` among what is drawn beside it.
    """
    if look := LOOKS.get(name, _BY_LABEL.get(name)):
        return look
    number = crc32(name.encode()) if place is None else place
    return Look(name, MARKERS[number % len(MARKERS)], COLOURS[number % len(COLOURS)])


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

OPEN: dict[Any, object] = {"axes.spines.top": False, "axes.spines.right": False}
"""Axes without a frame."""

FORMATS: Mapping[str, dict[str, Any]] = {
    # Without dates, so that the same figure is the same file.
    "pdf": {"dpi": 300, "metadata": {"CreationDate": None}},
    "png": {"dpi": 200, "metadata": {"Software": None}},
    "svg": {"dpi": 170, "metadata": {"Date": None}},
}
"""Files of a figure: PDF and PNG for papers, SVG for pages."""

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of all edges whose weights stand beside the colour bar."""


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
    ordered = np.sort(np.concatenate([panel.weight for panel in panels]))
    classes = np.unique(np.concatenate([panel.label for panel in panels]))
    with rc_context(STYLE):
        size = (2.6 * len(panels) + 0.7, 3.4)
        figure = Figure(figsize=size, dpi=100, layout="compressed")
        row = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, panel in zip(row, panels, strict=True):
            _draw(axes, panel, ordered, classes)
        scale = ScalarMappable(Normalize(0, 1), DARKNESS)
        bar = figure.colorbar(scale, ax=row, fraction=0.04, pad=0.01, aspect=25)
        values = np.quantile(ordered, QUANTILES)
        # One that is negligible beside the largest is 0.
        texts = ["0" if value < values[-1] / 1000 else f"{value:.2g}" for value in values]
        bar.set_ticks(QUANTILES, labels=texts, fontsize=6.5)
        bar.ax.set_title(weight_name, fontsize=7, loc="left")
        handles, labels = row[0].get_legend_handles_labels()
        place: Any = {"loc": "outside lower center", "ncols": min(len(classes), 15)}
        place |= {"fontsize": 7, "title_fontsize": 7, "handletextpad": 0.1, "handlelength": 1}
        figure.legend(handles, labels, title="class", frameon=False, columnspacing=1, **place)
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


def _draw(
    axes: Axes, panel: Panel, ordered: Float[ndarray, " _"], classes: Int[ndarray, " c"]
) -> None:
    # The share of all weights that are smaller, ties half.
    ends = [np.searchsorted(ordered, panel.weight, side) for side in ("left", "right")]
    darkness = np.mean(ends, axis=0) / ordered.size
    order = np.argsort(darkness, kind="stable")  # the dark ones on top
    shade = darkness[order]
    lines, widths = list(panel.position[panel.ends[order]]), 0.2 + 0.4 * shade**2
    axes.add_collection(LineCollection(lines, colors=DARKNESS(shade), linewidths=widths, zorder=1))
    size = float(np.clip(13_000 / max(len(panel.position), 1), 3.0, 20.0))
    look: Any = {"s": size, "linewidths": 0.2, "edgecolors": "white", "zorder": 2}
    for i, value in enumerate(classes):
        marker = MARKERS[i // len(COLOURS) % len(MARKERS)]
        x, y = panel.position[panel.label == value].T
        axes.scatter(x, y, c=COLOURS[i % len(COLOURS)], marker=marker, label=str(value), **look)
    # Ten thousand lines and nodes as vectors would make a page slow; titles stay text.
    axes.set_rasterization_zorder(2.2)
    axes.set(xlim=(-1.04, 1.04), ylim=(-1.04, 1.04), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set(color="#b0b0b0", linewidth=0.6)
    axes.set_title(panel.title, fontsize=9, pad=4)
    # Not as the axis' label, which would be drawn as pixels with what it lies behind.
    axes.text(0.5, -0.02, panel.note, fontsize=7, ha="center", va="top", transform=axes.transAxes)
