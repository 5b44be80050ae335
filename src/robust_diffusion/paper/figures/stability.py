"""Figure on the paper's Propositions 1 and 2: trained flows far beyond their integration period."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from robust_diffusion.attacks import PerturbedGraph
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.paper.figures.build import BuiltFigure
from robust_diffusion.paper.figures.draw import COLOURS, STYLE, mark_smoke_run
from robust_diffusion.paper.figures.spec import (
    FigureCell,
    FigureSpec,
    describe,
    panel_cells,
    stem_of,
    train_cell,
)
from robust_diffusion.robustness.evaluate_model import attack
from robust_diffusion.robustness.stability import (
    Row,
    area_under_curve,
    evaluations,
    follow,
    motion,
    thinned,
)

GRAPHS = 20
"""Random parts of the clean and of the attacked graph, by which an NFE detector is judged."""

ATTACKS = "attack=[random,gradient_injection]"
"""Attacks of a call that names none."""

SHOWN = {
    "energy": "Dirichlet energy",
    "growth": "distance of a neighbouring state",
    "overshoot": "beyond the initial range",
    "shift": "shift by injected nodes",
}
"""Panels from left to right, all relative to time 0; see `robustness.stability.follow`."""

SMALLEST = 1e-6
"""Lower end of the panels' axes: what is below is 0 up to rounding."""


def build_stability(spec: FigureSpec, overrides: Sequence[str], *, layer: int = 0) -> BuiltFigure:
    """Train the flows, attack them, follow their states, and draw what becomes of them.

    Of the attacks named, the last shifts the drawn states; all are held against the detector.

    Raises:
        ConfigError: An override that means nothing, or a layer that is not there.
    """
    attacks = [given for given in overrides if given.split("=")[0] in ("attack", "attacks")]
    cells = panel_cells(spec, overrides if attacks else [*overrides, ATTACKS])
    panels = [_measured(title, cell, layer) for title, cell in cells.items()]
    about = describe(spec, cells) | {"layer": layer, "graphs": GRAPHS, "panels": panels}
    rows = {panel["title"]: panel["rows"] for panel in panels}
    figure = draw_stability(rows, smoke=about["scale"] == "smoke")
    stem = stem_of(spec, overrides, (layer, attacks), (0, []))
    return BuiltFigure(figure, stem, about)


def _measured(title: str, cell: FigureCell, layer: int) -> dict[str, Any]:
    cfg = cell.cfg
    trained, datamodule, about = train_cell(cell, title)
    model, graph = trained.model.eval(), datamodule.view("test")
    assert graph.x is not None
    assert graph.edge_index is not None
    budget, attacked = instantiate(cfg.budget), {}
    for name, own in cfg.attacks.items():
        built = instantiate(own)
        attacked[str(name)] = attack(model, datamodule, budget, built, labels="true", seed=cfg.seed)
    last = list(attacked.values())[-1]
    clean = motion(model, graph.x, graph.edge_index, layer=layer)
    moved = motion(model, last.x, last.edge_index, layer=layer)
    return about | {
        "attack": list(attacked)[-1],
        "detection": {
            name: detection(model, graph.x, graph.edge_index, of) for name, of in attacked.items()
        },
        "rows": follow(clean, moved, seed=cfg.seed),
    }


def detection(
    model: torch.nn.Module,
    x: torch.Tensor,
    edge_index: torch.Tensor,
    attacked: PerturbedGraph,
) -> dict[str, float]:
    """Detection of an attacked graph by an adaptive solver's effort.

    Returns:
        `clean` and `attacked`, mean NFE over random parts of each graph, and `auc`, of the
        detector that takes the graph of more evaluations for the attacked one.
    """
    solver, n = Solver("dopri5", rtol=1e-4, atol=1e-4), x.size(0)
    parts = {
        "clean": [thinned(n, edge_index, n, seed=seed) for seed in range(GRAPHS)],
        "attacked": [
            thinned(n, attacked.edge_index, attacked.x.size(0), seed=seed) for seed in range(GRAPHS)
        ],
    }
    features = {"clean": x, "attacked": attacked.x}
    counts = {
        kind: [evaluations(model, solver, features[kind], part) for part in own]
        for kind, own in parts.items()
    }
    means = {kind: sum(own) / len(own) for kind, own in counts.items()}
    return {**means, "auc": area_under_curve(counts["clean"], counts["attacked"])}


def draw_stability(flows: Mapping[str, Sequence[Row]], *, smoke: bool = False) -> Figure:
    """One panel per quantity over time, one line per flow, on logarithmic axes."""
    with rc_context(STYLE):
        figure = Figure(figsize=(2.3 * len(SHOWN) + 0.2, 2.75), dpi=100)
        panels = figure.subplots(1, len(SHOWN))
        figure.subplots_adjust(left=0.05, right=0.99, top=0.9, bottom=0.3, wspace=0.28)
        for axis, (key, title) in zip(panels, SHOWN.items(), strict=True):
            _draw(axis, key, flows)
            axis.set_title(title, fontsize=8)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=8, fontsize=7, frameon=False)
        if smoke:
            mark_smoke_run(figure)
    return figure


def _draw(axis: Axes, key: str, flows: Mapping[str, Sequence[Row]]) -> None:
    for index, (title, rows) in enumerate(flows.items()):
        seen = [row for row in rows if row["t"] > 0 and key in row]
        axis.plot(
            [row["t"] for row in seen],
            np.maximum([row[key] for row in seen], SMALLEST),
            color=COLOURS[index % len(COLOURS)],
            linestyle=("-", "--", ":")[index // len(COLOURS) % 3],
            marker="o",
            markersize=2,
            linewidth=1,
            label=title,
        )
    axis.set(xscale="log", yscale="log", xlabel="t")
    highest = max((row[key] for rows in flows.values() for row in rows if key in row), default=1)
    axis.set_ylim(SMALLEST, max(10.0, 2 * highest))
    axis.tick_params(labelsize=6.5, length=2)
    axis.axvline(1.0, color="#b0b0b0", linewidth=0.6, zorder=0)  # end of the trained period
    axis.spines[["top", "right"]].set_visible(False)
