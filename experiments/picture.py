"""Figures in `docs/figures/` that new runs change, drawn from the published records.

    python experiments/picture.py attack    # README: accuracy on Cora, clean and attacked
    python experiments/picture.py tables    # charts of the paper's tables
    python experiments/picture.py sweep     # README: runs a short sweep, and draws what it prints

The other figures there are frozen, as the studies that they show are finished.
"""

import argparse
import os
import shlex
import subprocess
import sys
from html import escape
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from robust_diffusion.config import PUBLISHED_RECORDS
from robust_diffusion.paper.figures.draw import NEUTRAL, STYLE, draw_charts, look_of, render
from robust_diffusion.paper.tables import build_tables
from robust_diffusion.records import Record, read_records
from robust_diffusion.results.frame import frame, named_by_settings
from robust_diffusion.results.worst_case import recorded_on, worst_case_table, worst_cases

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "figures"

DIFFUSION = ("beltrami_guard", "mean_curvature", "beltrami", "grand", "heat")
OTHERS = ("gnn_guard", "appnp", "robust_gcn", "gin", "gcn_svd", "graph_sage", "gat", "mlp")
"""Rows from top to bottom: diffusion, then other networks."""

SWEEP = (
    "python -m robust_diffusion.run -m flow=beltrami solver=rk4 solver.step_size=0.25,0.5"
    " model.num_layers=2,3 flow.lipschitz=true,false training.max_epochs=15"
)

COLUMNS = 116
AS_TYPED: dict[str, Any] = {"drop_whitespace": False, "replace_whitespace": False}

MARKS = ("clean", "speit", "tdgia")
WORST = "worst"


def mean_accuracy() -> dict[str, dict[str, float]]:
    """Return the mean accuracy in % by model, or flow of a graph PDE, and test graph."""
    runs = [run for run in read_records(PUBLISHED_RECORDS) if plain(run)]
    first = {name(run): settings(run) for run in reversed(runs) if run.experiment != "tune"}
    found: dict[str, dict[str, float]] = {}
    for row in (*DIFFUSION, *OTHERS):
        alike = [c for c in runs if name(c) == row and settings(c) == first[row]]
        seeds = {run.seed for run in alike}
        if seeds < set(range(5)):
            raise SystemExit(f"{row}: seeds {sorted(seeds)}; five are wanted")
        runs_of_row = [run.accuracy for run in alike if run.seed < 5]
        found[row] = {mark: 100 * fmean(a[mark] for a in runs_of_row) for mark in MARKS}
    lowest = worst_accuracy()
    return {row: marks | {WORST: lowest[row]} for row, marks in found.items()}


def worst_accuracy() -> dict[str, float]:
    """Return the lowest accuracy in % by model, white box, with 50 nodes of 50 edges."""
    tried = recorded_on(frame(read_records(PUBLISHED_RECORDS)), {"worst-case", "worst-case-models"})
    table = worst_case_table(worst_cases(named_by_settings(tried)))
    wanted = {"dataset": "cora", "variant": "paper", "nodes": 50, "edges": 50}
    table = table[(table[list(wanted)] == pd.Series(wanted)).all(axis=1)]
    return dict(zip(table["model"], table["worst"], strict=True))


def plain(run: Record) -> bool:
    """Return whether a run is black box on Cora, with the paper's equations and attacks."""
    where = (run.dataset, run.fidelity, run.threat)
    return where == ("cora", "paper", "black_box") and set(MARKS) == run.accuracy.keys()


def name(run: Record) -> str:
    """Return the model of a run, or the flow of a graph PDE."""
    return str(run.flow if run.model == "graph_pde" else run.model)


def settings(run: Record) -> dict[str, Any]:
    """Return the configuration of a run without the seed."""
    return run.config.whole


def draw_attacks(found: dict[str, dict[str, float]]) -> Figure:
    """Draw one row per model, one mark per test graph, and the MLP as a line."""
    figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
    mlp = found.pop("mlp")["clean"]
    for height, row in enumerate(found):
        values = found[row].values()
        axes.plot(
            [min(values), max(values)], [height, height], color=NEUTRAL, alpha=0.35, lw=3, zorder=1
        )
    for test_graph in (*MARKS, WORST):
        look = look_of(test_graph).style
        if test_graph == WORST:
            look = {"marker": "X", "color": NEUTRAL, "label": "auto, on the model itself"}
        elif test_graph != "clean":
            look["label"] = f"{look['label']}, transferred"
        shown = [found[row][test_graph] for row in found]
        # Equal accuracies would hide each other.
        places = np.arange(len(found)) + {"speit": -0.16, "tdgia": 0.16}.get(test_graph, 0)
        axes.scatter(shown, places, s=46, **look, zorder=3, clip_on=False)
    axes.axvline(mlp, color=NEUTRAL, ls="--", lw=1, label=f"MLP, sees no edge: {mlp:.1f} %")
    axes.set(xlim=(-1.5, 100), xlabel="accuracy in %")
    axes.set_yticks(range(len(found)), [look_of(row).label for row in found])
    axes.axhline(len(DIFFUSION) - 0.5, color=NEUTRAL, lw=0.6)
    axes.invert_yaxis()
    axes.grid(axis="x", zorder=0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.suptitle("Cora, 50 injected nodes of 50 edges each")
    figure.legend(loc="outside lower center", frameon=False, ncols=3)
    return figure


def draw_terminal(command: str) -> str:
    """Run a command in an empty folder, and return what it prints as SVG."""
    environment = {**os.environ, "COLUMNS": "110", "OMP_NUM_THREADS": "1"}
    with TemporaryDirectory() as folder:
        output = subprocess.check_output(  # noqa: S603 - our own command
            [sys.executable, *shlex.split(command)[1:]],
            cwd=folder,
            env=environment,
            stderr=subprocess.STDOUT,  # the lines of progress
            text=True,
        )
    printed = f"$ {command}\n\n{output.rstrip()}".splitlines()
    lines = [part for line in printed for part in wrap(line, COLUMNS, **AS_TYPED) or [""]]
    height = 17 * len(lines) + 32
    rows = "\n".join(
        f'<text x="16" y="{28 + 17 * row}" xml:space="preserve">{escape(line)}</text>'
        for row, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {7.25 * COLUMNS + 32:.0f} {height}">'
        f'\n<rect width="100%" height="100%" rx="8" fill="#1e1e2e"/>\n<g fill="#e4e4ef" '
        f'font-family="Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="12">'
        f"\n{rows}\n</g>\n</svg>\n"
    )


def main() -> None:
    """Write the figures named on the command line."""
    parser = argparse.ArgumentParser(description="Draw pictures from the published records.")
    parser.add_argument("picture", choices=["attack", "tables", "sweep"])
    wanted = parser.parse_args().picture
    if wanted == "sweep":
        (PICTURES / "sweep.svg").write_text(draw_terminal(SWEEP), encoding="utf-8")
        return
    if wanted == "tables":
        rows = frame(read_records(PUBLISHED_RECORDS))
        for stem, _, figure in draw_charts(build_tables(rows), rows):
            (PICTURES / f"{stem}.svg").write_bytes(render(figure, "svg"))
        return
    mpl.rcParams.update(STYLE | {"font.size": 10})
    drawn = draw_attacks(mean_accuracy())
    (PICTURES / "accuracy_under_attack.svg").write_bytes(render(drawn, "svg"))


if __name__ == "__main__":
    main()
