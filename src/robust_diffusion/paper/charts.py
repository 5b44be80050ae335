"""Charts of the paper's tables: accuracy by model, budget, solver and integration period."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from robust_diffusion.paper.axes import SOLVERS, label_of
from robust_diffusion.paper.figures.draw import OPEN, STYLE, look_of
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.records.records import CLEAN, Record, is_tested, value_at
from robust_diffusion.results.entry import Entry
from robust_diffusion.results.runs import Runs, select

ACCURACY = "accuracy in %"


def draw_charts(
    tables: Mapping[int, PaperTable], counted: Runs
) -> Iterator[tuple[str, str, Figure]]:
    """Yield name, caption and figure of every chart that has records.

    `tables` is the result of `build_tables` on the counted records.
    """

    def points(*numbers: int, x: str = "injected") -> pd.DataFrame:
        entries = [entry for number in numbers for _, _, entry in tables[number]]
        rows = pd.DataFrame([_point(entry, x) for entry in entries if entry.mean is not None])
        return rows if rows.empty else rows[rows["x"].notna()]

    if not (models := points(1, 2, 3, 12, 13, 14)).empty:
        models = models.drop_duplicates(["panel", "series", "graph"])
        models = models.assign(
            x=models["y"],
            y=[look_of(name).label for name in models["series"]],
            series=models["graph"],
        )
        printed = models.assign(x=models["printed"], error=None, series="published")
        shown = models if counted.scale == "smoke" else pd.concat([models, printed])
        caption = "Accuracy on the clean graph and under each attack, with standard deviations"
        yield "models", caption, _draw(shown, ACCURACY, "", line="")
    if not (injected := points(9, 11)).empty:
        injected["panel"] += ", " + injected["attack"]
        injected = injected.drop_duplicates(["panel", "series", "x"]).sort_values(["panel", "x"])
        caption = "Accuracy against the number of injected nodes, each with as many edges"
        yield "injections", caption, _draw(injected, "injected nodes", ACCURACY)
    if not (solvers := points(5, x="nfe")).empty:
        evaluations = "evaluations of the flow in a forward pass"
        solvers["panel"] += ", " + solvers["graph"]
        caption = f"Accuracy of Beltrami by solver, against {evaluations}"
        yield "solvers", caption, _draw(solvers, evaluations, ACCURACY, line="")
    if not (periods := _periods(counted)).empty:
        caption = "Accuracy under attack against clean accuracy; the numbers are the end T of the "
        caption += "integration period, and the MLP sees no edge"
        yield "t-end", caption, _draw(periods, f"clean {ACCURACY}", f"{ACCURACY}, under attack")


def _point(entry: Entry, x: str) -> dict[str, Any]:
    keys = {"injected": CLEAN, "tau": "-", "attack": CLEAN, **entry.keys}
    counts = pd.Series([run.record.get("nfe") for run in entry.runs], dtype=float)
    solver = SOLVERS.get(keys.get("solver", ""))
    named = f"{solver} τ={keys['tau']}".removesuffix(" τ=-")
    return {
        "panel": label_of("dataset", keys["dataset"]),
        "series": named if solver else keys["model"],
        "graph": entry.graph if solver is None else label_of("attack", entry.graph),
        "attack": label_of("attack", keys["attack"]),
        "x": counts.mean() if x == "nfe" else float(keys["injected"].replace(CLEAN, "0")),
        "y": entry.mean,
        "error": entry.std,
        "printed": entry.reported.mean,
    }


def _periods(counted: Runs) -> pd.DataFrame:
    """Return flows by integration period; a network without one, such as the MLP, is a point."""
    groups: dict[tuple[str, str, str, float], list[Record]] = {}
    for record in counted.of("t-end"):
        if is_tested(record):
            model = record["flow"] if record["model"] == "graph_pde" else record["model"]
            t_end = value_at(record, "config.model.flow.t_end")
            end = t_end if isinstance(t_end, int | float) else -1
            for attack in sorted(record["accuracy"].keys() - {CLEAN}):
                groups.setdefault((record["dataset"], attack, str(model), end), []).append(record)
    points = []
    for (dataset, attack, model, end), runs in sorted(groups.items(), key=lambda item: item[0][3]):
        # One setting of each point, and each seed once.
        chosen = [record["accuracy"] for record in select(runs, {}, attack).finished.values()]
        means = 100 * pd.DataFrame(chosen).mean()
        place = {"x": means[CLEAN], "y": means[attack], "error": None}
        panel = f"{label_of('dataset', dataset)}, {label_of('attack', attack)}"
        note = "" if end < 0 else f"{end:g}"
        points.append({"panel": panel, "series": model, "note": note, **place})
    return pd.DataFrame(points)


def _draw(points: pd.DataFrame, x: str, y: str, *, line: str = "-") -> Figure:
    """Draw one panel per `panel` with its `series`; names on the y axis go from top to bottom."""
    panels, names = points.groupby("panel", sort=False), list(dict.fromkeys(points["series"]))
    columns, rows = min(2, len(panels)), -(-len(panels) // 2)
    looks = [look_of(name, place) for place, name in enumerate(names)]
    sizes = [{"ms": 9 if look.marker == "|" else 4, "lw": 1} for look in looks]
    styles = {name: look.style | size for name, look, size in zip(names, looks, sizes, strict=True)}
    listed = isinstance(points["y"].iloc[0], str)
    with rc_context({**STYLE, **OPEN, "figure.labelsize": 8}):
        size = (1 + 3.5 * columns, 0.8 + (3 if listed else 2.4) * rows)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharey=not listed).ravel()
        for axes, (title, panel) in zip(grid, panels, strict=False):
            axes.set_title(title)
            axes.grid(color="#eeeeee")
            heights = list(dict.fromkeys(panel["y"]))
            for name, curve in panel.groupby("series", sort=False):
                at = [heights.index(value) for value in curve["y"]] if listed else curve["y"]
                error = curve["error"].astype(float).fillna(0)
                errors = {"xerr" if listed else "yerr": error} if error.any() else {}
                axes.errorbar(curve["x"], at, **errors, **styles[str(name)], linestyle=line)
                for note, *place in zip(curve.get("note", ()), curve["x"], at, strict=False):
                    axes.annotate(note, place, (3, 3), textcoords="offset points", fontsize=6)
            if listed:
                axes.set_yticks(range(len(heights)), heights)
                axes.invert_yaxis()
        for axes in grid[len(panels) :]:
            axes.remove()
        figure.supxlabel(x)
        figure.supylabel(y)
        handles = [Line2D([], [], **styles[name]) for name in names]
        figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False)
    return figure
