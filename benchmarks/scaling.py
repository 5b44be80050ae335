"""Time and memory of a training step against the number of edges, 10 thousand to 10 million.

python benchmarks/scaling.py                    # all
python benchmarks/scaling.py compiled           # this backend, at the sizes of the fit
python benchmarks/scaling.py compiled 3000000   # one point
"""

import json
import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from measure import PeakGrowth, by_turns, in_own_process

from robust_diffusion.flows import Beltrami
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GraphPDE
from robust_diffusion.operators import set_backend

EDGES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
DEGREE, WIDTH, CLASSES = 10, 64, 10
BACKENDS = ("torch", "compiled")
FIT_FROM = 300_000
"""Fewest edges in the fit of the exponent; smaller graphs fit in cache."""

PLOT = Path(__file__).with_name("results") / "scaling.svg"


def main() -> None:
    """Measure each point in a separate process, plot, and print one line of JSON."""
    if len(sys.argv) > 2:
        print(json.dumps(_measure(sys.argv[1], int(sys.argv[2]))))
        return
    if len(sys.argv) > 1:
        large = [str(edges) for edges in EDGES if edges >= FIT_FROM]
        found = [in_own_process("scaling.py", sys.argv[1], edges) for edges in large]
        exponents = {key: _exponent(found, key) for key in ("seconds", "megabytes")}
        print(json.dumps({"points": found, "exponents": exponents}))
        return
    points = {
        backend: [in_own_process("scaling.py", backend, str(edges)) for edges in EDGES]
        for backend in BACKENDS
    }
    exponents = {
        backend: {key: _exponent(of, key) for key in ("seconds", "megabytes")}
        for backend, of in points.items()
    }
    _plot(points)
    print(json.dumps({"points": points, "exponents": exponents}))


def _measure(backend: str, edges: int) -> dict[str, Any]:
    """Measure one Beltrami layer of width 64, forward and backward, on a random graph."""
    torch.set_num_threads(1)
    set_backend(backend)
    torch.manual_seed(0)
    nodes = edges // DEGREE
    half = torch.randint(nodes, (2, edges // 2))
    edge_index = torch.cat([half, half.flip(0)], 1)
    x = torch.randn(nodes, WIDTH)
    solver = Solver("implicit_adams", num_steps=1)
    model = GraphPDE(WIDTH, WIDTH, CLASSES, flow=partial(Beltrami), solver=solver, num_layers=1)

    def step() -> None:
        model(x, edge_index).square().mean().backward()

    with PeakGrowth() as grown:
        step()
    seconds = by_turns({"step": step}, repeat=3 if edges > FIT_FROM else 9, warm_up=1)["step"]
    return {"edges": edges, "seconds": median(seconds), "megabytes": grown.megabytes}


def _exponent(points: list[dict[str, Any]], key: str) -> float:
    large = [point for point in points if point["edges"] >= FIT_FROM]
    edges, values = (np.log([point[of] for point in large]) for of in ("edges", key))
    return float(np.polyfit(edges, values, 1)[0])


def _plot(points: dict[str, list[dict[str, Any]]]) -> None:
    mpl.use("svg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    labels = {"seconds": "s per training step", "megabytes": "growth of memory, MB"}
    for axis, (key, label) in zip(axes, labels.items(), strict=True):
        for backend, of in points.items():
            axis.loglog([p["edges"] for p in of], [p[key] for p in of], "o-", label=backend)
        last = points["compiled"][-1]
        line = [last[key] * edges / last["edges"] for edges in EDGES]
        axis.loglog(EDGES, line, ":", color="grey", label="proportional")
        axis.set(xlabel="directed edges", ylabel=label)
        axis.grid(alpha=0.3)
    axes[0].legend()
    PLOT.parent.mkdir(exist_ok=True)
    figure.savefig(PLOT, metadata={"Date": None})


if __name__ == "__main__":
    main()
