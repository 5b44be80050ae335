"""A large random graph end to end: cut, train on clusters, attack, evaluate.

    python benchmarks/large.py --nodes=2000000 --edges=10000000
    python benchmarks/large.py --dataset=coauthor --epochs=100

Prints one line of JSON with the seconds of each part, accuracies, and the peak memory of the
process, and writes it to `results/large.json`. The surrogate of SPEIT is a GCN; the victim is
Beltrami or GRAND. With a dataset, the same model is also trained on the full batch, to show what
clusters cost in accuracy.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from measure import machine
from networks import ONE_STEP, load
from torch import nn
from torch_geometric.data import Data

from robust_diffusion.attacks import SPEIT, Budget, Task
from robust_diffusion.data import Clusters, GraphDataModule
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.models import GCN, GraphPDE
from robust_diffusion.models.victim import Victim
from robust_diffusion.training import Fit

RESULTS = Path(__file__).with_name("results") / "large.json"

EDGES_PER_NODE = 20
"""Edges of each injected node."""


def main() -> None:
    """Measure, print and record the results."""
    parser = argparse.ArgumentParser(description="Train, attack and evaluate one large graph.")
    parser.add_argument("--dataset", help="this dataset= option")
    parser.add_argument("--nodes", type=int, default=2_000_000, help="else of a drawn graph")
    parser.add_argument("--edges", type=int, default=10_000_000, help="its undirected edges")
    parser.add_argument("--features", type=int, default=64, help="its features")
    parser.add_argument("--flow", default="beltrami", help="of the victim")
    parser.add_argument("--parts", type=int, default=200, help="that METIS cuts")
    parser.add_argument("--joined", type=int, default=10, help="parts per batch")
    parser.add_argument("--epochs", type=int, default=3, help="of each training")
    parser.add_argument("--steps", type=int, default=10, help="of SPEIT")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0, help="of the weights")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    batching = Clusters(given.parts, given.joined)
    if given.dataset:
        datamodule = load(given.dataset)
        datamodule.batching = batching
    else:
        source = partial(citation_like_graph, given.nodes, given.edges, given.features)
        datamodule = GraphDataModule(source, name="generated", batching=batching)
    found = _measured(datamodule, given)
    print(json.dumps(found))
    on = given.dataset or f"{given.nodes} nodes, {given.edges} edges"
    recorded = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    recorded[f"{on}, {given.flow}, seed {given.seed}"] = found | {
        "options": vars(given),
        "machine": machine(),
    }
    RESULTS.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


def _measured(datamodule: GraphDataModule, given: argparse.Namespace) -> dict[str, Any]:
    clock = _Clock()
    datamodule.setup()
    clock("load")
    datamodule.train_dataloader()
    clock("cut")
    surrogate = _trained(GCN, datamodule, given)
    clock("train GCN")
    victim = partial(GraphPDE, flow=given.flow, solver=ONE_STEP, num_layers=3)
    model = _trained(victim, datamodule, given)
    clock(f"train {given.flow}")
    graph, targets = datamodule.graph, datamodule.target_nodes
    budget = Budget(max(50, targets.numel() // 200), EDGES_PER_NODE).resolve(graph.x)
    attacked_model = Victim(surrogate, graph.x, graph.edge_index)
    task = Task(graph, targets, graph.y).attacker_view(attacked_model, "predictions")
    generator = torch.Generator().manual_seed(0)
    attacked = SPEIT(num_steps=given.steps)(attacked_model, task, budget, generator)
    clock(f"SPEIT, {given.steps} steps")
    accuracy = {"clean": _accuracy(model, graph, graph.x, graph.edge_index, targets)}
    accuracy["SPEIT"] = _accuracy(model, graph, attacked.x, attacked.edge_index, targets)
    clock("evaluate")
    found = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges // 2,
        "epochs": given.epochs,
        "seconds": clock.seconds,
        "accuracy": accuracy,
        "peak_gib": _peak_gib(),
    }
    if given.dataset:
        whole = load(given.dataset)
        model = _trained(victim, whole, given)
        clock(f"train {given.flow}, full batch")
        accuracy["clean, full batch"] = _accuracy(model, graph, graph.x, graph.edge_index, targets)
    return found


class _Clock:
    """Stopwatch that prints and stores the seconds of each part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    def __call__(self, part: str) -> None:
        self.seconds[part] = time.perf_counter() - self._start
        self._start += self.seconds[part]
        print(f"{part}: {self.seconds[part]:.1f} s, {_peak_gib():.1f} GiB", flush=True)


def _peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _trained(build: Any, datamodule: GraphDataModule, given: argparse.Namespace) -> nn.Module:
    pl.seed_everything(given.seed, verbose=False)
    model = build(datamodule.num_features, 64, out_channels=datamodule.num_classes)
    trainer = partial(pl.Trainer, accelerator="cpu", devices=1, enable_model_summary=False)
    fit = Fit(trainer, max_epochs=given.epochs, patience=given.epochs)
    with tempfile.TemporaryDirectory() as folder:
        return fit(model, datamodule, directory=Path(folder)).module.model


def _accuracy(
    model: nn.Module, graph: Data, x: torch.Tensor, edge_index: torch.Tensor, targets: torch.Tensor
) -> float:
    with torch.no_grad():
        predicted = model(x, edge_index)[targets].argmax(1)
    return float((predicted == graph.y[targets]).double().mean())


if __name__ == "__main__":
    main()
