"""Charts of the paper's tables: accuracy by model, budget, solver and integration period."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from robust_diffusion.paper.axes import SOLVERS, label_of
from robust_diffusion.paper.figures.draw import draw_series, look_of
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
    if not (periods := _periods(counted)).empty:
        caption = "Accuracy under attack against clean accuracy; the numbers are the end T of the "
        caption += "integration period, and the MLP sees no edge"
        yield (
            "t-end",
            caption,
            draw_series(periods, f"clean {ACCURACY}", f"{ACCURACY}, under attack"),
        )


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
