"""Drawing: the looks of models, graphs, charts of tables, and figure files."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy import ndarray

from robust_diffusion.paper.axes import SOLVERS, label_of
from robust_diffusion.paper.tables import PaperTable
from robust_diffusion.records.record import CLEAN
from robust_diffusion.results.frame import asked_by, settings_by_path
from robust_diffusion.results.view import View, cells
from robust_diffusion.system.files import write_whole

COLOURS: tuple[str, ...] = ("#cc6677", "#6f63c9", "#b8860b", "#1f8a44", "#4477aa")
COLOURS += ("#b05a2b", "#2f9e8c", "#8a8a2a", "#aa4499")
"""Paul Tol's muted hues, moved to a lightness that reads on white and on the site's dark page."""

NEUTRAL = "#7f7f7f"
"""Colour of texts and axes on pages, which has the same contrast with white and the dark page."""

MARKERS = "os^vD<>pXPh*d"

DARKNESS = LinearSegmentedColormap.from_list(
    "darkness", [(0, "#f2f2f2"), (0.5, "#c4c4c4"), (0.8, "#7a7a7a"), (1, "#000000")]
)

STYLE: dict[Any, object] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "axes.facecolor": "none",
    "grid.color": NEUTRAL,
    "grid.alpha": 0.25,
    "svg.fonttype": "none",
    "svg.hashsalt": "robust_diffusion",  # the same ids in an SVG each time
    "pdf.fonttype": 42,
}

_FORMATS: Mapping[str, dict[str, Any]] = {
    # Without dates, so that the same figure is the same file.
    "pdf": {"dpi": 300, "metadata": {"CreationDate": None}},
    "png": {"dpi": 200, "metadata": {"Software": None}},
    "svg": {"dpi": 170, "metadata": {"Date": None}, "facecolor": "none"},
}
"""Files of a figure: PDF and PNG for papers, SVG for pages."""

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of all edges whose weights stand beside the colour bar."""

ACCURACY = "accuracy in %"


class Look(NamedTuple):
    """Name, marker and colour of a series."""

    label: str
    marker: str
    colour: str

    @property
    def style(self) -> dict[str, Any]:
        """Matplotlib's arguments for its lines and marks."""
        return {"label": self.label, "marker": self.marker, "color": self.colour}


with Path(__file__).with_name("looks.csv").open(newline="", encoding="utf-8") as _file:
    LOOKS = {row.pop("name"): Look(**row) for row in csv.DictReader(_file)}
"""Looks of models by the option that names them or their flow, and of test graphs by the attack."""

_BY_LABEL = {look.label: look for look in LOOKS.values()}


def look_of(name: str, place: int | None = None) -> Look:
    """Return the look of a model by its option or label; an unknown one is labelled by its name.

    Its marker and colour follow from the name, or from its `place` among the series of a chart.
    """
    if look := LOOKS.get(name, _BY_LABEL.get(name)):
        return look
    number = crc32(name.encode()) if place is None else place
    return Look(name, MARKERS[number % len(MARKERS)], COLOURS[number % len(COLOURS)])


class Panel(NamedTuple):
    """Graph with positions of nodes within -1 and 1, classes, and weights of edges, at least 0."""

    title: str
    note: str
    position: Float[ndarray, "n 2"]
    label: Int[ndarray, " n"]
    ends: Int[ndarray, "e 2"]
    weight: Float[ndarray, " e"]


def draw_panels(panels: Sequence[Panel], weight_name: str, *, smoke: bool = False) -> Figure:
    """Draw graphs in a row, with one scale of darkness and one legend for all.

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
            _draw_graph(axes, panel, ordered, classes)
        scale = ScalarMappable(cmap=DARKNESS)
        scale.set_clim(0, 1)
        bar = figure.colorbar(scale, ax=row, fraction=0.04, pad=0.01, aspect=25)
        values = np.quantile(ordered, QUANTILES)
        # Weights that are negligible beside the largest count as 0.
        texts = ["0" if value < values[-1] / 1000 else f"{value:.2g}" for value in values]
        bar.set_ticks(QUANTILES, labels=texts, fontsize=6.5)
        bar.ax.set_title(weight_name, fontsize=7, loc="left")
        handles, labels = row[0].get_legend_handles_labels()
        place: Any = {"loc": "outside lower center", "ncols": min(len(classes), 15)}
        place |= {"fontsize": 7, "title_fontsize": 7, "handletextpad": 0.1, "handlelength": 1}
        figure.legend(handles, labels, title="class", frameon=False, columnspacing=1, **place)
        _mark(figure, smoke)
    return figure


def _draw_graph(
    axes: Axes, panel: Panel, ordered: Float[ndarray, " _"], classes: Int[ndarray, " c"]
) -> None:
    # The share of all weights that are smaller; ties count half.
    ends = [np.searchsorted(ordered, panel.weight, side) for side in ("left", "right")]
    darkness = np.mean(ends, axis=0) / ordered.size
    order = np.argsort(darkness, kind="stable")  # the dark ones on top
    shade = darkness[order]
    lines, widths = list(panel.position[panel.ends[order]]), 0.2 + 0.4 * shade**2
    axes.add_collection(LineCollection(lines, colors=DARKNESS(shade), linewidths=widths, zorder=1))
    size = float(np.clip(13_000 / max(len(panel.position), 1), 3.0, 20.0))
    look: Any = {"s": size, "linewidths": 0.2, "edgecolors": "white", "zorder": 2}
    for i, value in enumerate(classes):
        look |= look_of(str(value), i).style | {"marker": MARKERS[i // len(COLOURS) % len(MARKERS)]}
        axes.scatter(*panel.position[panel.label == value].T, **look)
    # Ten thousand lines and nodes as vectors would make a page slow; titles stay text.
    axes.set_rasterization_zorder(2.2)
    axes.set(xlim=(-1.04, 1.04), ylim=(-1.04, 1.04), aspect="equal", xticks=[], yticks=[])
    axes.set_facecolor("white")
    axes.spines[:].set(color="#b0b0b0", linewidth=0.6)
    axes.set_title(panel.title, fontsize=9, pad=4)
    # Not as the axis' label, which would be drawn as pixels with what it lies behind.
    axes.text(0.5, -0.02, panel.note, fontsize=7, ha="center", va="top", transform=axes.transAxes)


def draw_series(points: pd.DataFrame, x_label: str, y_label: str, *, line: str = "-") -> Figure:
    """Draw one panel per `panel` with its `series`; names on the y axis go from top to bottom.

    Args:
        points: Columns `panel`, `series`, `x`, `y` and `error`.
        x_label: Label of all x axes.
        y_label: Label of all y axes.
        line: Style of the lines; "" for points alone.
    """
    panels, names = points.groupby("panel", sort=False), list(dict.fromkeys(points["series"]))
    columns = 3 if len(panels) == 3 else min(2, len(panels))  # no empty place
    rows = -(-len(panels) // columns)
    looks = [look_of(name, place) for place, name in enumerate(names)]
    sizes = [{"ms": 9 if look.marker == "|" else 4, "lw": 1} for look in looks]
    styles = {name: look.style | size for name, look, size in zip(names, looks, sizes, strict=True)}
    listed = isinstance(points["y"].iloc[0], str)
    style = STYLE | {"axes.spines.top": False, "axes.spines.right": False, "figure.labelsize": 8}
    with rc_context(style):
        width = 2.5 if columns == 3 else 3.5
        size = (1 + width * columns, 0.8 + (3 if listed else 2.4) * rows)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharey=not listed).ravel()
        for axes, (title, panel) in zip(grid, panels, strict=False):
            axes.set_title(title)
            axes.grid()
            for name, curve in panel.groupby("series", sort=False):
                error = curve["error"].astype(float).fillna(0)
                errors = {"xerr" if listed else "yerr": error} if error.any() else {}
                axes.errorbar("x", "y", data=curve, **errors, **styles[str(name)], linestyle=line)
            if listed:
                axes.invert_yaxis()
        for axes in grid[len(panels) :]:
            axes.remove()
        figure.supxlabel(x_label)
        figure.supylabel(y_label)
        handles = [Line2D([], [], **styles[name]) for name in names]
        figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False)
    return figure


def draw_charts(
    tables: Mapping[int, PaperTable], frame: pd.DataFrame
) -> Iterator[tuple[str, str, Figure]]:
    """Yield name, caption and figure of every chart that has records.

    `tables` is the result of `build_tables` on the frame of recorded results.
    """
    about = tables[3].about

    def points(*numbers: int, x: str = "injected") -> pd.DataFrame:
        lines = [point for number in numbers for point in _points(tables[number], x)]
        rows = pd.DataFrame(lines)
        return rows if rows.empty else rows[rows["x"].notna()]

    if not (models := points(1, 2, 3, 12, 13, 14)).empty:
        models = models.drop_duplicates(["panel", "series", "graph"])
        models = models.assign(
            x=models["y"],
            y=[look_of(name).label for name in models["series"]],
            series=models["graph"],
        )
        printed = models.assign(x=models["printed"], error=None, series="published")
        shown = models if about["scale"] == "smoke" else pd.concat([models, printed])
        caption = "Accuracy on the clean graph and under each attack, with standard deviations"
        yield "models", caption, draw_series(shown, ACCURACY, "", line="")
    if not (injected := points(9, 11)).empty:
        injected["panel"] += ", " + injected["attack"]
        injected = injected.drop_duplicates(["panel", "series", "x"]).sort_values(["panel", "x"])
        caption = "Accuracy against the number of injected nodes, each with as many edges"
        yield "injections", caption, draw_series(injected, "injected nodes", ACCURACY)
    if not (solvers := points(5, x="nfe")).empty:
        evaluations = "evaluations of the flow in a forward pass"
        solvers["panel"] += ", " + solvers["graph"]
        caption = f"Accuracy of Beltrami by solver, against {evaluations}"
        yield "solvers", caption, draw_series(solvers, evaluations, ACCURACY, line="")
    counted = (frame["scale"] == about["scale"]) & (frame["variant"] == about["fidelity"])
    if not (periods := _periods(asked_by(frame[counted], "t-end"))).empty:
        label = "end T of the integration period"
        caption = f"Accuracy against the {label}, clean and under attack; the MLP sees no edge"
        yield "t-end", caption, draw_series(periods, label, ACCURACY)


def _points(table: PaperTable, x: str) -> Iterator[dict[str, Any]]:
    for cell in table.cells[table.cells["mean"].notna()].to_dict("records"):
        keys: dict[Any, Any] = {"injected": CLEAN, "tau": "-", "attack": CLEAN, **cell}
        solver = SOLVERS.get(keys.get("solver", ""))
        named = f"{solver} τ={keys['tau']}".removesuffix(" τ=-")
        counts = table.rows.loc[cell["index"], "nfe"]
        yield {
            "panel": label_of("dataset", keys["dataset"]),
            "series": named if solver else keys["model"],
            "graph": cell["graph"] if solver is None else label_of("attack", cell["graph"]),
            "attack": label_of("attack", keys["attack"]),
            "x": counts.mean() if x == "nfe" else float(keys["injected"].replace(CLEAN, "0")),
            "y": cell["mean"],
            "error": cell["std"],
            "printed": cell["printed_mean"],
        }


def _periods(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy of flows by integration period; a network without one is a line."""
    settings = map(settings_by_path, runs["record"])
    runs = runs.assign(t_end=[s.get("flow.t_end", s.get("model.flow.t_end", -1)) for s in settings])
    table = cells(runs, View(["t_end", "dataset", "attack", "model"], []))
    known = sorted({t_end for t_end in table["t_end"] if t_end >= 0})
    points = []
    for cell in table[table["n"] > 0].sort_values("t_end", kind="stable").to_dict("records"):
        panel = f"{label_of('dataset', cell['dataset'])}, {label_of('attack', cell['attack'])}"
        place = {"panel": panel, "series": cell["model"], "y": cell["mean"], "error": cell["std"]}
        periods = [cell["t_end"]] if cell["t_end"] >= 0 else known
        points += [{"x": t_end, **place} for t_end in periods]
    return pd.DataFrame(points)


def _mark(figure: Figure, smoke: bool) -> None:
    """Mark the figure of a smoke run in red."""
    if smoke:
        text = "smoke run: says nothing about the paper"
        figure.text(0.99, 0.01, text, color="#b00020", fontsize=7, ha="right", va="bottom")


def write_figure(
    figure: Figure, directory: str | Path, stem: str, description: Mapping[str, Any]
) -> list[Path]:
    """Write a figure in every format, and its description to `<stem>.json`."""
    contents = {f"{stem}.{form}": render(figure, form) for form in _FORMATS}
    about = {**description, "files": {form: f"{stem}.{form}" for form in _FORMATS}}
    text = json.dumps(about, indent=2, sort_keys=True, allow_nan=False)
    contents[f"{stem}.json"] = f"{text}\n".encode()
    folder = Path(directory)
    return [write_whole(folder / name, raw, option="--directory") for name, raw in contents.items()]


def render(figure: Figure, form: str) -> bytes:
    """Return a figure as the bytes of a pdf, png or svg file."""
    buffer = io.BytesIO()
    with rc_context(STYLE):
        figure.savefig(buffer, format=form, **_FORMATS[form])
    if form != "svg":
        return buffer.getvalue()
    # Pages are white or dark, and an image knows neither.
    text = buffer.getvalue().decode().replace("#000000", NEUTRAL)
    return text.replace("</style>", f"text{{fill: {NEUTRAL}}}</style>", 1).encode()
