"""Figure on the paper's Propositions 1 and 2: trained flows far beyond their integration period."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from hydra.utils import instantiate
from matplotlib import rc_context
from matplotlib.figure import Figure
from torch import Tensor, nn

from robust_diffusion.attacks import PerturbedGraph
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.paper.figures.draw import OPEN, STYLE, look_of, mark_smoke_run
from robust_diffusion.paper.figures.spec import (
    BuiltFigure,
    FigureCell,
    FigureSpec,
    plan,
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
    given = overrides if attacks else [*overrides, ATTACKS]
    cells, stem, about = plan(spec, given, (layer, attacks), (0, []))
    panels = [_measured(title, cell, layer) for title, cell in cells.items()]
    rows = {panel["title"]: panel["rows"] for panel in panels}
    figure = draw_stability(rows, smoke=about["scale"] == "smoke")
    about |= {"layer": layer, "graphs": GRAPHS, "panels": panels}
    return BuiltFigure(figure, stem, about, pd.DataFrame(map(_numbers, panels)))


def _measured(title: str, cell: FigureCell, layer: int) -> dict[str, Any]:
    cfg = cell.cfg
    trained, datamodule, about = train_cell(cell, title)
    model, graph = trained.model.eval(), datamodule.view("test")
    budget, attacked = instantiate(cfg.budget), {}
    for name, own in cfg.attacks.items():
        built = instantiate(own)
        attacked[str(name)] = attack(model, datamodule, budget, built, labels="true", seed=cfg.seed)
    name, last = list(attacked.items())[-1]
    clean, moved = (motion(model, of.x, of.edge_index, layer=layer) for of in (graph, last))
    found = {name: detection(model, graph.x, graph.edge_index, of) for name, of in attacked.items()}
    rows = follow(clean, moved, seed=cfg.seed)
    return about | {"attack": name, "detection": found, "rows": rows}


def detection(
    model: nn.Module, x: Tensor, edge_index: Tensor, attacked: PerturbedGraph
) -> dict[str, float]:
    """Detection of an attacked graph by an adaptive solver's effort.

    Returns:
        `clean` and `attacked`, mean NFE over random parts of each graph, and `auc`, of the
        detector that takes the graph of more evaluations for the attacked one.
    """
    solver, n = Solver("dopri5", rtol=1e-4, atol=1e-4), x.size(0)

    def counts(x: Tensor, edge_index: Tensor) -> list[int]:
        parts = (thinned(n, edge_index, x.size(0), seed=seed) for seed in range(GRAPHS))
        return [evaluations(model, solver, x, part) for part in parts]

    clean, moved = counts(x, edge_index), counts(attacked.x, attacked.edge_index)
    means = {"clean": float(np.mean(clean)), "attacked": float(np.mean(moved))}
    return {**means, "auc": area_under_curve(clean, moved)}


def _numbers(panel: Mapping[str, Any]) -> dict[str, str]:
    """The last state of a flow, the most that a quantity was, and what NFE tells."""
    last, most = panel["rows"][-1], pd.DataFrame(panel["rows"]).max()
    nfe = panel["detection"][panel["attack"]]
    return {
        "flow": panel["title"],
        "t": f"{last['t']:g}",
        "energy": f"{last['energy']:.2g}",
        **{f"largest {of}": f"{most[of]:.3g}" for of in ("norm", "overshoot", "growth", "shift")},
        **{f"AUC {name}": f"{of['auc']:.2f}" for name, of in panel["detection"].items()},
        "NFE clean": f"{nfe['clean']:.0f}",
        "attacked": f"{nfe['attacked']:.0f}",
    }


def draw_stability(flows: Mapping[str, Sequence[Row]], *, smoke: bool = False) -> Figure:
    """One panel per quantity over time, one line per flow, on logarithmic axes.

    A quantity that is 0 in all flows at all times has no panel, and is told in words.
    """
    states = pd.concat({title: pd.DataFrame(rows) for title, rows in flows.items()})
    states = states.reindex(columns=["t", *SHOWN])
    shown = [key for key in SHOWN if states[key].max() > SMALLEST]
    none = [f"{title}: 0 in all flows" for key, title in SHOWN.items() if key not in shown]
    lines = -(-len(shown) // 2)
    with rc_context({**STYLE, **OPEN, "axes.titlesize": 8}):
        figure = Figure(figsize=(4.6, 0.9 + 1.85 * lines), layout="constrained")
        panels = figure.subplots(lines, 2, squeeze=False).ravel()
        for axes, key in zip(panels, shown, strict=False):
            seen = states[states["t"] > 0].set_index("t", append=True)[key].dropna()
            seen = seen.clip(lower=SMALLEST)
            for title, of in seen.groupby(level=0, sort=False):
                x = of.index.get_level_values("t")
                axes.plot(x, of, **look_of(str(title)).style, ms=3, linewidth=1)
            axes.set(xscale="log", yscale="log", title=SHOWN[key])
            axes.set_ylim(bottom=min(1.0, seen.min()) / 2)
            axes.tick_params(labelsize=8, length=2)
            axes.minorticks_off()
            axes.axvline(1.0, color="#b0b0b0", linewidth=0.6, zorder=0)  # end of trained period
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
