"""Records as a whole study would leave them: plausible numbers in every table."""

import random
from typing import Any

from robust_diffusion.paper.layout import Layout, Line, load_layout, table_numbers
from robust_diffusion.results.cells import CLEAN
from tests.paper.records import Record, failed, finished, timed

SECONDS = {"graph_pde": 40.0, "beltrami_guard": 90.0, "gnn_guard": 60.0, "gcn_svd": 25.0}
"""Training times; the others are quicker."""

SLOWER = {"heat": 0.4, "heat_plus": 0.45, "grand": 0.8, "mean_curvature": 1.2, "beltrami": 1.4}

HOSTILE = '<script>alert("x")</script><img src="https://example.org/a.png"> \u2028 & \'"'
"""The most hostile message of an error."""


def study(*, seeds: int = 5, scale: str = "full", trouble: bool = True) -> list[Record]:
    """One record per table, setting and seed, near the printed numbers.

    With trouble, some cells fail, lack data, warn, have other versions, or fewer seeds.
    """
    draw = random.Random(0)
    records = []
    for number in table_numbers():
        layout = load_layout(number)
        if layout.kind == "budgets":
            continue
        if layout.kind == "time":
            records += _times(layout, seeds, draw)
            continue
        groups: dict[str, tuple[Line, dict[str, tuple[float, float]]]] = {}
        for row in layout.rows:
            for column in layout.columns:
                line, printed = layout.at(row, column), layout.printed(row, column)
                graph = line.printed["attack"]
                _, wanted = groups.setdefault(repr(sorted(line.record.items())), (line, {}))
                wanted[graph] = (printed.mean or 60.0, printed.std or 1.0)
        for i, (line, wanted) in enumerate(groups.values()):
            shift = draw.choice([0.0, 0.0, -0.5, 0.7, -3.5, 2.0])
            for seed in range(seeds):
                if trouble and number in (1, 3) and i == 5 and seed > seeds - 2:
                    continue
                values = {
                    graph: min(99.0, draw.gauss(mean + shift, std)) / 100
                    for graph, (mean, std) in wanted.items()
                }
                records.append(_record(line, values, layout.experiment, seed, draw))
    records += _periods(draw, seeds)
    records += [*mlps(seeds), *worst_cases(seeds)]
    for record in records:
        record["scale"] = scale
    return _troubled(records) if trouble else records


def _times(layout: Layout, seeds: int, draw: random.Random) -> list[Record]:
    records = []
    every = [(part, row, c) for part in layout.parts for row in part.rows for c in part.columns]
    for part, row, column in every:
        line, printed = part.at(row, column), part.printed(row, column)
        own = {key: v for key, v in line.record.items() if not key.startswith("config.")}
        steps = line.record.get("config.model.solver.num_steps", 2)
        for seed in range(seeds):
            seconds = draw.uniform(0.8, 1.2) * (printed.mean or 1.0) / 1e3
            settings = {"solver": {"num_steps": steps}}
            records.append(timed(seconds, seed=seed, settings=settings, **own))
    return records


def _record(
    line: Line, values: dict[str, float], experiment: str, seed: int, draw: random.Random
) -> Record:
    settings: dict[str, dict[str, Any]] = {}
    own = {key: value for key, value in line.record.items() if not key.startswith("config.")}
    for path, value in line.record.items():
        if path.startswith("config."):
            *_, part, key = path.split(".")
            settings.setdefault(part, {})[key] = value
    attacks = tuple(graph for graph in values if graph != CLEAN) or ("speit",)
    values = dict.fromkeys(attacks, 0.6) | values
    nodes = int(settings.get("budget", {}).get("max_injected_nodes", 50))
    record = finished(
        values.get(CLEAN, 0.75),
        {attack: values[attack] for attack in attacks},
        experiment=experiment,
        **{"dataset": "cora", "model": "graph_pde", "flow": "beltrami"} | own,
        seed=seed,
        attacks=attacks,
        budget=(nodes, nodes),
        settings=settings,
        code="4f1c09aa",
        revision="88d4fe3",
        time=f"2026-11-2{seed}T12:00:00+00:00",
        versions={"python": "3.11.7", "torch": "2.13.0"},
    )
    seconds = SECONDS.get(record["model"], 12.0) * SLOWER.get(record["flow"] or "", 1.0)
    steps = settings.get("solver", {}).get("num_steps", 2)
    # Real tables share cells; these are drawn anew for each.
    record["cell"] += experiment
    record["seconds"] = {"train": seconds * draw.uniform(0.8, 1.25), "test": 0.1}
    record["nfe"] = 3 * (4 * steps if record["solver"] == "implicit_adams" else 2 * steps + 4)
    return record


def _periods(draw: random.Random, seeds: int) -> list[Record]:
    return [
        finished(
            0.8 - 0.05 * abs(t_end - 1) ** 0.5 + draw.gauss(0, 0.004),
            0.62 - slope * t_end + draw.gauss(0, 0.006),
            experiment="t-end",
            flow=flow,
            seed=seed,
            attacks=("speit",),
            settings={"flow": {"t_end": t_end}},
        )
        for flow, slope in (("heat", 0.12), ("beltrami", 0.02))
        for t_end in (0.1, 0.3, 1.0, 2.0)
        for seed in range(seeds)
    ]


def mlps(seeds: int) -> list[Record]:
    """Cells of the MLP, 60 % each."""
    options = {"experiment": "mlp", "model": "mlp", "flow": None}
    return [finished(0.6, seed=seed, attacks=(), **options) for seed in range(seeds)]


def worst_cases(seeds: int) -> list[Record]:
    """Cells of experiment=worst-case, each model attacked by those who know it and who do not."""
    lowest = {"mlp": 0.6, "beltrami": 0.2, "uniform_modulation": 0.25, "beltrami_guard": 0.45}
    return [
        finished(
            0.6 if name == "mlp" else 0.75,
            reached + 0.01 * seed * (name == "beltrami") + above,
            experiment="worst-case",
            model=name if name in ("mlp", "beltrami_guard") else "graph_pde",
            flow=name if name != "mlp" else None,
            seed=seed,
            attacks=("auto",),
            threat=threat,
            split="grb",
            cell=f"{name} {threat} {seed}",
        )
        for name, reached in lowest.items()
        for threat, above in (("white_box", 0.0), ("black_box", 0.1 * (name != "mlp")))
        for seed in range(seeds)
    ]


def _troubled(records: list[Record]) -> list[Record]:
    changed = []
    for record in records:
        place = (record["experiment"], record["dataset"], record["flow"] or record["model"])
        if place == ("table-3", "pubmed", "heat"):
            options = {"experiment": "table-3", "dataset": "pubmed", "flow": "heat"}
            changed.append(failed(HOSTILE, seed=record["seed"], **options))
        elif place[:2] == ("table-12", "flickr"):
            options = {"experiment": "table-12", "dataset": "flickr", "model": record["model"]}
            error = "data/flickr/adj.npz: not found; `data fetch flickr` gets it"
            changed.append(failed(error, "DataError", seed=record["seed"], **options))
        else:
            changed.append(record)
    warned = next(r for r in changed if r["experiment"] == "table-3" and "accuracy" in r)
    warned["warnings"] = {"tdgia": ["weaker than chance: 60.00 % against 10.00 %"]}
    warned["code"] = "older<b>"
    return changed
