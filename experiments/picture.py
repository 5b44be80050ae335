"""Figures in `docs/figures/`, drawn from the published records and reports.

    python experiments/picture.py NAME

attack        README: accuracy on Cora, clean and under transferred attacks
certificates  certified accuracy and accuracy under attack, from `experiments/certificates/`
tradeoff      certified radius against accuracy, by noise, from `certificates/tradeoff/`
collective    certificates for an attack on all targets at once, from `certificates/collective/`
each          accuracy under attacks on one target at a time, from `experiments/each/`
effort        accuracy against forward passes of each attack, from `experiments/effort/`
versions      the same for two versions of `auto`, from `experiments/cover/`
tables        charts of the paper's tables
"""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from robust_diffusion.certificates.base import clopper_pearson
from robust_diffusion.certificates.report import read_certificates
from robust_diffusion.errors import DataError
from robust_diffusion.evaluation.report import plot_traces
from robust_diffusion.evaluation.single_target import right_by_edges
from robust_diffusion.paper.figures.draw import draw_charts, look_of, render
from robust_diffusion.paper.paper_table import build_tables
from robust_diffusion.records import latest_by_run, read_records
from robust_diffusion.records.records import by_experiment
from robust_diffusion.results.frame import frame, named_by_settings
from robust_diffusion.results.runs import Runs
from robust_diffusion.results.worst_case import recorded_on, worst_case_table, worst_cases

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "experiments" / "results" / "records.jsonl.gz"
EACH, EFFORT = ROOT / "experiments" / "each", ROOT / "experiments" / "effort"
COVER = ROOT / "experiments" / "cover"
CERTIFICATES = ROOT / "experiments" / "certificates"
PICTURES = ROOT / "docs" / "figures"

DIFFUSION = ("beltrami_guard", "mean_curvature", "beltrami", "grand", "heat")
OTHERS = ("gnn_guard", "appnp", "robust_gcn", "gin", "gcn_svd", "graph_sage", "gat", "mlp")
"""Rows from top to bottom: diffusion, then other networks."""

ATTACKED = ("gcn", "gnn_guard")
"""Models in `effort`."""

COMPARED = ("gcn", "beltrami")
"""Models in `versions`, attacked with 20 nodes of 4 edges."""

GREYS = ("#bbbbbb", "#888888", "#555555", "#111111")
MARKS = ("clean", "speit", "tdgia")
WORST = "worst"


def mean_accuracy() -> dict[str, dict[str, float]]:
    """Return the mean accuracy in % by model, or flow of a graph PDE, and test graph."""
    cells = [cell for cell in latest_by_run(read_records(RECORDS)).values() if plain(cell)]
    first = {name(cell): settings(cell) for cell in reversed(cells) if cell["experiment"] != "tune"}
    found: dict[str, dict[str, float]] = {}
    for row in (*DIFFUSION, *OTHERS):
        alike = [c for c in cells if name(c) == row and settings(c) == first[row]]
        seeds = {cell["seed"] for cell in alike}
        if seeds < set(range(5)):
            raise SystemExit(f"{row}: seeds {sorted(seeds)}; five are wanted")
        cells_of_row = [cell["accuracy"] for cell in alike if cell["seed"] < 5]
        found[row] = {mark: 100 * fmean(a[mark] for a in cells_of_row) for mark in MARKS}
    lowest = worst_accuracy()
    return {row: marks | {WORST: lowest[row]} for row, marks in found.items()}


def worst_accuracy() -> dict[str, float]:
    """Return the lowest accuracy in % by model, white box, with 50 nodes of 50 edges."""
    runs = by_experiment(read_records(RECORDS), scale="full")
    tried = recorded_on(runs, {"worst-case", "worst-case-models"})
    table = worst_case_table(worst_cases(named_by_settings(frame(tried))))
    wanted = {"dataset": "cora", "variant": "paper", "nodes": 50, "edges": 50}
    table = table[(table[list(wanted)] == pd.Series(wanted)).all(axis=1)]
    return dict(zip(table["model"], table["worst"], strict=True))


def plain(cell: dict[str, Any]) -> bool:
    """Return whether a run is black box on Cora, with the paper's equations and attacks."""
    where = (cell.get("dataset"), cell.get("fidelity"), cell.get("threat"))
    return where == ("cora", "paper", "black_box") and set(MARKS) == cell["accuracy"].keys()


def name(cell: dict[str, Any]) -> str:
    """Return the model of a run, or the flow of a graph PDE."""
    return str(cell["flow"] if cell["model"] == "graph_pde" else cell["model"])


def settings(cell: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a run without the seed."""
    return {key: value for key, value in cell["config"].items() if key != "seed"}


def draw_attacks(found: dict[str, dict[str, float]]) -> Figure:
    """Draw one row per model, one mark per test graph, and the MLP as a line."""
    figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
    mlp = found.pop("mlp")["clean"]
    for height, row in enumerate(found):
        values = found[row].values()
        axes.plot([min(values), max(values)], [height, height], color="#cccccc", lw=3, zorder=1)
    for test_graph in (*MARKS, WORST):
        look = look_of(test_graph).style
        if test_graph == WORST:
            look = {"marker": "X", "color": "#1b1b1b", "label": "auto, on the model itself"}
        elif test_graph != "clean":
            look["label"] = f"{look['label']}, transferred"
        shown = [found[row][test_graph] for row in found]
        axes.scatter(shown, range(len(found)), s=46, **look, zorder=3, clip_on=False)
    axes.axvline(mlp, color="#1b1b1b", ls="--", lw=1, label=f"MLP, sees no edge: {mlp:.1f} %")
    axes.set(xlim=(-1.5, 100), xlabel="accuracy in %")
    axes.set_yticks(range(len(found)), [look_of(row).label for row in found])
    axes.axhline(len(DIFFUSION) - 0.5, color="#888888", lw=0.6)
    axes.invert_yaxis()
    axes.grid(axis="x", color="#eeeeee", zorder=0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.suptitle("Cora, 50 injected nodes of 50 edges each")
    figure.legend(loc="outside lower center", frameon=False, ncols=3)
    return figure


def one_by_one(name: str) -> pd.DataFrame:
    """Read the saved results of `attack_each`, by node."""
    return pd.read_csv(EACH / name / "each.csv", index_col="node")


def report(folder: Path) -> dict[str, Any]:
    """Read a saved report of `evaluate`."""
    saved: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return saved


def certificates(*parts: str) -> dict[str, dict[str, Any]]:
    """Read reports of `certify` by the name of their folder."""
    try:
        return read_certificates([CERTIFICATES.joinpath(*parts)])
    except DataError as error:
        raise SystemExit(str(error)) from error


def draw_tradeoff(found: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw average certified radius against smoothed accuracy, a panel per scheme.

    Args:
        found: Reports by `<model>-<certificate>-<probabilities>`.
    """
    schemes = sorted({str(record["certificate"]) for record in found.values()}, reverse=True)
    figure = plt.figure(figsize=(8, 4.6), layout="constrained")
    panels = figure.subplots(1, len(schemes), squeeze=False)
    for axes, scheme in zip(panels[0], schemes, strict=True):
        of_panel = {n: r for n, r in found.items() if r["certificate"] == scheme}
        options = next(iter(of_panel.values()))["options"]
        noise = [key for key in options if key.startswith("p_")]
        for name, record in of_panel.items():
            model = name.split("-")[0]
            accuracy, nodes = record["clean_accuracy"], record["num_targets"]
            right = np.array(round(accuracy * nodes))
            low, high = clopper_pearson(right, nodes, 0.025)
            x, bars = 100 * accuracy, 100 * np.array([[accuracy - low], [high - accuracy]])
            at = (x, record["radius"])
            axes.errorbar(*at, xerr=bars, ls="", elinewidth=0.5, **look_of(model).style)
            if model != "mlp":
                text = ", ".join(f"{record['options'][key]:g}" for key in noise)
                axes.annotate(text, at, (3, 4), textcoords="offset points", fontsize=8)
        axes.set_title(f"{scheme.replace('_', '-')}, by {', '.join(noise)}", fontsize=10)
        axes.set(xlabel="smoothed accuracy in %", ylim=(-0.2, None))
        axes.set_ylabel(f"average certified radius in {next(iter(of_panel.values()))['unit']}")
        axes.grid(color="#eeeeee", zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0][0].get_legend_handles_labels()
    shown = dict(zip(labels, handles, strict=True))
    figure.legend(shown.values(), shown, loc="outside lower center", frameon=False, ncols=2)
    draws = {record["options"]["samples"] for record in found.values()}
    figure.suptitle(f"Cora, {'/'.join(map(str, sorted(draws)))} draws; bars are 95 % intervals")
    return figure


def draw_certificates(found: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw certified accuracy as lines and attacked accuracy as marks, in a panel per scheme.

    Args:
        found: Reports by `<model>-<certificate>`.
    """
    schemes = sorted({str(record["certificate"]) for record in found.values()}, reverse=True)
    figure = plt.figure(figsize=(5.6, 4.2), layout="constrained")
    panels = figure.subplots(1, len(schemes), sharey=True, squeeze=False)
    for axes, scheme in zip(panels[0], schemes, strict=True):
        of_panel = {n: r for n, r in found.items() if r["certificate"] == scheme}
        for place, (name, record) in enumerate(of_panel.items()):
            style = look_of(name.removesuffix(f"-{scheme}")).style
            curve = pd.DataFrame(record["curve"])
            budgets, certified = curve["budget"].to_numpy(), 100 * curve["certified"].to_numpy()
            # Each budget gets a level that extends halfway to its neighbours.
            edges = np.concatenate([budgets[:1] - 0.5, (budgets[1:] + budgets[:-1]) / 2])
            edges = np.append(edges, budgets[-1] + 0.5)
            axes.stairs(certified, edges, baseline=None, color=style["color"], lw=1.6)
            if "collective" in curve:
                together = 100 * curve["collective"].to_numpy()
                axes.plot(budgets, together, color=style["color"], ls="--", lw=1.6)
            at = budgets + 0.16 * (place - (len(of_panel) - 1) / 2)
            attacked = 100 * curve["attacked"] if "attacked" in curve else np.full(len(at), np.nan)
            axes.plot(at, attacked, ls="", ms=6, **style)
        axes.set(xlabel=next(iter(of_panel.values()))["unit"], ylim=(-2, 80))
        axes.set_title(scheme.replace("_", "-"), fontsize=10)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(color="#eeeeee", zorder=0)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel("accuracy in %")
    models, _ = panels[0][0].get_legend_handles_labels()
    grey: dict[str, Any] = {"color": "#777777", "lw": 1.6}
    kinds = [
        Line2D([], [], label="certified: no attack leaves less", **grey),
        Line2D([], [], label="certified, all targets together", ls="--", **grey),
        Line2D([], [], color="#777777", ls="", marker="o", label="what attacks leave"),
    ]
    if not any("collective" in record["curve"][0] for record in found.values()):
        del kinds[1]
    figure.legend(handles=[*models, *kinds], loc="outside lower center", frameon=False, ncols=2)
    figure.suptitle("Cora, smoothed models: accuracy by what may be changed", fontsize=11)
    return figure


def draw_each(easy: pd.DataFrame, every: pd.DataFrame, certified: Mapping[str, Any]) -> Figure:
    """Draw the accuracy of a GCN by flips at each target: with a certificate, by degree, by margin.

    Args:
        easy: Result of `attack_each` on the easy targets.
        every: Result of `attack_each` on all test nodes.
        certified: Report of `certify` on the easy targets.
    """
    figure, panels = plt.subplots(1, 3, figsize=(9, 3.6), sharey=True, layout="constrained")
    curve = pd.DataFrame(certified["curve"])
    right = 100 * right_by_edges(easy, max_edges=5)["all"]
    panels[0].plot(right.index, right, "-o", color="#b2182b", label="attacked")
    smoothed = {"color": "#4477aa", "label": "smoothed GCN, certified"}
    panels[0].plot(curve["budget"], 100 * curve["certified"], "--s", **smoothed)
    panels[0].set_title("easy targets: attack and certificate", fontsize=10)
    columns: tuple[Literal["degree", "margin"], ...] = ("degree", "margin")
    for axes, by in zip(panels[1:], columns, strict=True):
        shares = 100 * right_by_edges(every, by, max_edges=5)
        groups: list[Any] = list(shares)  # intervals
        for group, color in zip(groups, GREYS, strict=False):
            lower = "up" if group == groups[0] else f"over {group.left:.3g}"
            label = f"{lower} to {group.right:.3g}"
            axes.plot(shares.index, shares[group], "-o", color=color, ms=4, label=label)
        axes.set_title(f"all test nodes, by {by}", fontsize=10)
    for axes in panels:
        axes.set(ylim=(0, 102))
        axes.grid(color="#eeeeee", zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    panels[0].set_ylabel("targets right, in %")
    figure.supxlabel("flipped edges of each target", fontsize=10)
    figure.suptitle("A GCN on Cora, one target attacked at a time", fontsize=11)
    return figure


def attacks_of(folder: Path) -> dict[str, Any]:
    """Read the attacks of a saved report of `evaluate`, by name."""
    return {attack["name"]: attack for attack in report(folder)["attacks"]}


def draw_effort(panels: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Figure:
    """Draw the lowest accuracy of each attack against its forward passes, a panel per model."""
    figure, axes = plt.subplots(1, len(panels), figsize=(9, 3.8), sharey=True, squeeze=False)
    figure.set_layout_engine("constrained")
    for panel, (model, attacks) in zip(axes[0], panels.items(), strict=True):
        plot_traces(attacks, panel)
        panel.set_title(look_of(model).label, fontsize=10)
    return figure


def draw_versions() -> Figure:
    """Draw the effort of `auto` with 20 nodes of 4 edges: version 10, and version 6 dashed."""
    folders = {"version 10": COVER, "version 6": COVER / "version-6"}
    figure = draw_effort(
        {
            model: {v: attacks_of(path / f"{model}-20x4")["auto"] for v, path in folders.items()}
            for model in COMPARED
        }
    )
    for axes in figure.axes:
        axes.set_ylim(30, 90)
        for line, color, style in zip(axes.lines, ("#b2182b", "#555555"), ("-", "--"), strict=True):
            line.set(color=color, ls=style)
        # The legend omits the seconds, which other work on the machine lengthened.
        axes.legend(axes.lines, folders, frameon=False)
    figure.axes[1].set_ylabel("")
    return figure


def main() -> None:
    """Write the figure named on the command line, or those of the tables."""
    pictures: Mapping[str, tuple[str, Callable[[], Figure]]] = {
        "attack": ("accuracy_under_attack.svg", lambda: draw_attacks(mean_accuracy())),
        "certificates": (
            "certified_accuracy.svg",
            lambda: draw_certificates(certificates()),
        ),
        "each": (
            "attacked_each.svg",
            lambda: draw_each(
                one_by_one("gcn-easy"), one_by_one("gcn-grbcd"), certificates()["gcn-sparse"]
            ),
        ),
        "effort": (
            "accuracy_against_effort.svg",
            lambda: draw_effort({m: attacks_of(EFFORT / m) for m in ATTACKED}),
        ),
        "versions": ("accuracy_of_versions.svg", draw_versions),
        "collective": (
            "collective_certificates.svg",
            lambda: draw_certificates(certificates("collective")),
        ),
        "tradeoff": ("certified_radius.svg", lambda: draw_tradeoff(certificates("tradeoff"))),
    }
    parser = argparse.ArgumentParser(description="Draw pictures from the published records.")
    parser.add_argument("picture", choices=[*pictures, "tables"], help="written to docs/figures/")
    chosen = parser.parse_args().picture
    if chosen == "tables":
        counted = Runs(read_records(RECORDS), fidelity="paper")
        for stem, _, figure in draw_charts(build_tables(counted), counted):
            (PICTURES / f"{stem}.svg").write_bytes(render(figure, "svg"))
        return
    name, draw = pictures[chosen]
    # With a fixed salt and no date, the same records give the same file.
    mpl.rcParams.update({"svg.hashsalt": "robust_diffusion", "font.size": 10})
    draw().savefig(PICTURES / name, metadata={"Date": None})


if __name__ == "__main__":
    main()
