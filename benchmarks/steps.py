"""Steps on large graphs: with freed memory kept or returned, and with several threads.

python benchmarks/steps.py kept 3000000   # one part; prints one line of JSON
"""

import json
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from measure import by_turns, summary
from networks import ONE_STEP, epoch_of, load, network
from torch import Tensor

from robust_diffusion.flows import Beltrami
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GraphPDE
from robust_diffusion.operators import graph, set_backend

DEGREE, WIDTH, COMMUNITY, INSIDE = 10, 64, 300, 0.9
Step = Callable[[], object]


def main() -> None:
    """Measure one part."""
    part, size = sys.argv[1], sys.argv[2]
    repeat = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    torch.set_num_threads(1)
    set_backend("compiled")
    parts: dict[str, Callable[[str], dict[str, Step]]] = {
        "threads": _threads,
        "given_back": partial(_kept, kept=False),
        "kept": partial(_kept, kept=True),
    }
    seconds = by_turns(parts[part](size), repeat=repeat, warm_up=1)
    print(json.dumps({name: summary(of) for name, of in seconds.items()}))


def _threads(on_graph: str) -> dict[str, Step]:
    """Return an epoch on a dataset, or a step on that number of edges, with 1 and 2 threads."""
    if on_graph.isdigit():
        run = step_on(communities(int(on_graph)))
    else:
        datamodule = load(on_graph)
        views = datamodule.view("train"), datamodule.view("val")
        run = epoch_of(network(datamodule, ONE_STEP), *views)

    def on(threads: int) -> None:
        torch.set_num_threads(threads)
        run()
        torch.set_num_threads(1)

    return {"1": partial(on, 1), "2": partial(on, 2)}


def _kept(edges: str, *, kept: bool) -> dict[str, Step]:
    """Return a step on communities, with freed memory kept or returned to the system."""
    if not kept:
        graph.keep_freed_memory = bool  # type: ignore[assignment]
    return {"step": step_on(communities(int(edges)))}


def step_on(edge_index: Tensor) -> Step:
    """Return a step of one Beltrami layer of width 64, forward and backward."""
    torch.manual_seed(0)
    x = torch.randn(int(edge_index.max()) + 1, WIDTH)
    solver = Solver("implicit_adams", num_steps=1)
    model = GraphPDE(WIDTH, WIDTH, WIDTH, flow=partial(Beltrami), solver=solver, num_layers=1)

    def step() -> None:
        model(x, edge_index).square().mean().backward()

    return step


def communities(edges: int) -> Tensor:
    """Draw directed edges among nodes of degree 10, 90 % within communities, shuffled."""
    generator = np.random.default_rng(0)
    nodes, half = edges // DEGREE, edges // 2
    src = generator.integers(nodes, size=half)
    within = src // COMMUNITY * COMMUNITY + generator.integers(COMMUNITY, size=half)
    anywhere = generator.integers(nodes, size=half)
    dst = np.where(generator.uniform(size=half) < INSIDE, np.minimum(within, nodes - 1), anywhere)
    shuffled = generator.permutation(nodes)
    src, dst = shuffled[src], shuffled[dst]
    return torch.from_numpy(np.concatenate([[src, dst], [dst, src]], axis=1))


if __name__ == "__main__":
    main()
