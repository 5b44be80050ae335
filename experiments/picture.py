"""The picture of the README: accuracy on Cora, clean and under attack, from the published records.

`python experiments/picture.py` writes `docs/figures/accuracy_under_attack.svg`.
"""

from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

from robust_diffusion.evaluation import latest_by_cell, read_records

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "experiments" / "results" / "records.jsonl.gz"
PICTURE = ROOT / "docs" / "figures" / "accuracy_under_attack.svg"

MODELS = {
    "beltrami_guard": "BeltramiGuard",
    "mean_curvature": "Mean curvature",
    "beltrami": "Beltrami",
    "grand": "GRAND",
    "heat": "Heat",
    "gnn_guard": "GNNGuard",
    "appnp": "APPNP",
    "robust_gcn": "RobustGCN",
    "gin": "GIN",
    "gcn_svd": "GCN-SVD",
    "graph_sage": "GraphSAGE",
    "gat": "GAT",
    "mlp": "MLP",
}
"""Rows from top to bottom: diffusion, then other networks."""
MARKS = {"clean": ("o", "#4477aa"), "speit": ("^", "#ee7733"), "tdgia": ("v", "#b2182b")}


def mean_accuracy() -> dict[str, dict[str, float]]:
    """Mean accuracy in % by model, or flow of a graph PDE, and test graph."""
    cells = [cell for cell in latest_by_cell(read_records(RECORDS)).values() if plain(cell)]
    first = {name(cell): settings(cell) for cell in reversed(cells) if cell["experiment"] != "tune"}
    found: dict[str, dict[str, float]] = {}
    for row in MODELS:
        alike = [c for c in cells if name(c) == row and settings(c) == first[row]]
        seeds = {cell["seed"] for cell in alike}
        if seeds < set(range(5)):
            raise SystemExit(f"{row}: seeds {sorted(seeds)}; five are wanted")
        cells_of_row = [cell["accuracy"] for cell in alike if cell["seed"] < 5]
        found[row] = {mark: 100 * fmean(a[mark] for a in cells_of_row) for mark in MARKS}
    return found


def plain(cell: dict[str, Any]) -> bool:
    """True of black-box cells on Cora of the paper's equations, in the tables' settings."""
    where = (cell.get("dataset"), cell.get("fidelity"), cell.get("threat"))
    return where == ("cora", "paper", "black_box") and MARKS.keys() == cell["accuracy"].keys()


def name(cell: dict[str, Any]) -> str:
    """Model, or the flow of a graph PDE."""
    return str(cell["flow"] if cell["model"] == "graph_pde" else cell["model"])


def settings(cell: dict[str, Any]) -> dict[str, Any]:
    """Configuration without the seed."""
    return {key: value for key, value in cell["config"].items() if key != "seed"}


def draw(found: dict[str, dict[str, float]]) -> None:
    """One row per model, one mark per test graph, and the MLP as a line."""
    mpl.rcParams.update({"svg.hashsalt": "robust_diffusion", "font.size": 10})
    figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
    mlp = found.pop("mlp")["clean"]
    for height, row in enumerate(found):
        values = found[row].values()
        axes.plot([min(values), max(values)], [height, height], color="#cccccc", lw=3, zorder=1)
    for test_graph, (marker, color) in MARKS.items():
        label = "clean" if test_graph == "clean" else f"under {test_graph.upper()}"
        shown = [found[row][test_graph] for row in found]
        axes.scatter(shown, range(len(found)), s=46, c=color, marker=marker, label=label, zorder=3)
    axes.axvline(mlp, color="#1b1b1b", ls="--", lw=1, label=f"MLP, sees no edge: {mlp:.1f} %")
    axes.set(xlim=(0, 100), xlabel="accuracy in %, mean of five seeds")
    axes.set_yticks(range(len(found)), [MODELS[row] for row in found])
    axes.axhline(4.5, color="#888888", lw=0.6)
    axes.invert_yaxis()
    axes.grid(axis="x", color="#eeeeee", zorder=0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.suptitle("Cora: 50 injected nodes of 50 edges each, attacks transferred from a GCN")
    figure.legend(loc="outside lower center", frameon=False, ncols=4)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    draw(mean_accuracy())
