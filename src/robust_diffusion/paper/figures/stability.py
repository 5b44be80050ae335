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
from robust_diffusion.paper.figures.draw import STYLE, mark_smoke_run
from robust_diffusion.paper.figures.looks import look_of
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
"""Lowest value that is drawn: 0 up to rounding."""


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
    """One panel per quantity over time, one line per flow, on logarithmic axes.

    A quantity that is 0 in all flows at all times has no panel, and is told in words.
    """
    highest = {
        key: max((row[key] for rows in flows.values() for row in rows if key in row), default=0)
        for key in SHOWN
    }
    shown = [key for key in SHOWN if highest[key] > SMALLEST]
    none = [f"{title}: 0 in all flows" for key, title in SHOWN.items() if key not in shown]
    with rc_context(STYLE):
        figure = Figure(figsize=(4.6, 0.9 + 1.85 * -(-len(shown) // 2)), layout="constrained")
        panels = figure.subplots(-(-len(shown) // 2), 2, squeeze=False).ravel()
        for axis, key in zip(panels, shown, strict=False):
            _draw(axis, key, flows)
            axis.set_title(SHOWN[key], fontsize=8)
        handles, _ = panels[0].get_legend_handles_labels()
        if len(shown) % 2:
            panels[-1].set_axis_off()
            panels[-1].legend(handles=handles, loc="center", frameon=False)
        else:
            figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)
        figure.supxlabel("\n".join(["t; trained up to the grey line", *none]), fontsize=8)
        if smoke:
            mark_smoke_run(figure)
    return figure


def _draw(axis: Axes, key: str, flows: Mapping[str, Sequence[Row]]) -> None:
    least = 1.0
    for title, rows in flows.items():
        seen = [row for row in rows if row["t"] > 0 and key in row]
        y = np.maximum([row[key] for row in seen], SMALLEST)
        axis.plot([row["t"] for row in seen], y, **look_of(title).style, ms=3, linewidth=1)
        least = min(least, y.min(initial=least))
    axis.set(xscale="log", yscale="log")
    axis.set_ylim(bottom=least / 2)
    axis.tick_params(labelsize=8, length=2)
    axis.minorticks_off()
    axis.axvline(1.0, color="#b0b0b0", linewidth=0.6, zorder=0)  # end of the trained period
    axis.spines[["top", "right"]].set_visible(False)
