"""Host syncs of `auto` on a simulated GPU, per round of moves and per forward pass.

Attacks a GCN and Beltrami (3 x 64, one step) on a synthetic graph, within 5 nodes of 20 edges. A
round of moves trims edges, allots them, and refits the features twice.

    python benchmarks/auto_syncs.py                      # print
    python benchmarks/auto_syncs.py --record after       # into results/launches.json
    PYTHONPATH=../before/src python benchmarks/auto_syncs.py --record before    # another checkout
"""

import argparse
import json
import os
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["ROBUST_DIFFUSION_CARD"] = "1"
sys.path.append(str(Path(__file__).parents[1]))

import torch
from networks import ONE_STEP
from torch_geometric.data import Data

from robust_diffusion.attacks import AutoInjection, Budget
from robust_diffusion.attacks.gradient_ascent import StepRule
from robust_diffusion.attacks.injection.base import draw_targets
from robust_diffusion.attacks.injection.constants import AUTO
from robust_diffusion.attacks.injection.edge_placement import Placement
from robust_diffusion.attacks.injection.part import Climb, Injection
from robust_diffusion.attacks.task import Task
from robust_diffusion.flows import Beltrami
from robust_diffusion.models import GCN, GraphPDE
from robust_diffusion.models.victim import Victim
from tests.attacks.graphs import small_graph, train
from tests.card import CARD, card

RESULTS, KEY = Path(__file__).with_name("results") / "launches.json", "auto"
BUDGET = Budget(5, 20, (-0.94, 0.94))
STEPS = AutoInjection().num_steps
ROUNDS = len(AUTO.moves)


@dataclass(frozen=True)
class Syncs:
    """Means over rounds of moves."""

    per_round: float
    passes_per_round: float
    per_pass: float


def trained(name: str, graph: Data) -> torch.nn.Module:
    """Train a network for a few epochs, always with the same seed."""
    torch.manual_seed(0)
    f, c = graph.num_features, graph.num_classes
    build: dict[str, Any] = {
        "gcn": partial(GCN, f, 16, out_channels=c),
        "beltrami": partial(GraphPDE, f, out_channels=c, flow=Beltrami, solver=ONE_STEP),
    }
    return train(build[name](), graph, graph.index_train, epochs=60)


def count(name: str) -> tuple[Syncs, Counter[str]]:
    """Count the host syncs of rounds of moves, one of each kind, also by place."""
    graph = small_graph()
    model, places, passes = trained(name, graph), Counter[str](), 0
    move, generator = Climb._moved, torch.Generator().manual_seed(0)
    with card() as syncs:
        model = model.to(CARD)
        x, edge_index, labels = (t.to(CARD) for t in (graph.x, graph.edge_index, graph.y))
        task = Task(Data(x=x, edge_index=edge_index), graph.index_test.to(CARD), labels)
        rows = draw_targets(task.targets, BUDGET.injected_degrees, generator)
        start = Placement.of(task, rows, BUDGET.injected_degrees, 0)

        def moved(part: Climb, *args: Any, **options: Any) -> Any:
            nonlocal passes
            before, forwards = syncs.copy(), part.victim.forwards
            out = move(part, *args, **options)
            places.update(syncs - before)
            passes += part.victim.forwards - forwards
            return out

        with Victim(model, x, edge_index) as victim, mock.patch.object(Climb, "_moved", moved):
            bound = "", victim, victim, task, BUDGET, STEPS, generator
            climb = Climb(*bound, "equal", StepRule(), share=1 / 24, moves=ROUNDS)
            climb.improve(Injection.at(task, start, x[: len(rows)]))
    # Numbers that are copied to the device without waiting are no syncs.
    waits = Counter({place: n for place, n in places.items() if "non_blocking" not in place})
    return Syncs(waits.total() / ROUNDS, passes / ROUNDS, waits.total() / passes), places


def main() -> None:
    """Count, print, and record under a name."""
    parser = argparse.ArgumentParser(description="Count host syncs of `auto`.")
    parser.add_argument("--record", help="name of the counts in results/launches.json")
    name = parser.parse_args().record
    counts = {}
    for model in ("gcn", "beltrami"):
        counts[model], places = count(model)
        print(model, counts[model])
        for place, number in places.most_common():
            print(f"  {number / ROUNDS:6.1f} {place}")
    if name:
        recorded = json.loads(RESULTS.read_text())
        recorded.setdefault(KEY, {})[name] = {m: asdict(syncs) for m, syncs in counts.items()}
        RESULTS.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
