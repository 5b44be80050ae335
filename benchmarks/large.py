"""A large random graph end to end: cut, train on clusters, attack, evaluate.

    python benchmarks/large.py --nodes=2000000 --edges=10000000
    python benchmarks/large.py --dataset=coauthor --epochs=100
    python benchmarks/large.py --graph=wordnet.npz --model=gcn --epochs=40 --steps=12

Prints one line of JSON with the seconds of each part, accuracies, and the peak memory of the
process, and writes it to `results/large.json`. The surrogate of SPEIT is a GCN; the victim is
Beltrami or GRAND. With a dataset, the same model is also trained on the full batch, to show what
clusters cost in accuracy. With a graph's file, one model is trained on the full batch and attacked
by `auto` at 10,000 targets, within 500 nodes of 20 edges.
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

from robust_diffusion.attacks import SPEIT, AutoInjection, Budget, Task
from robust_diffusion.data import Clusters, GraphDataModule
from robust_diffusion.data.sources import citation_like_graph, load_custom
from robust_diffusion.evaluation import WhiteBox
from robust_diffusion.evaluation.measure import Bench, measure
from robust_diffusion.models import GCN, MLP, GraphPDE
from robust_diffusion.models.victim import Victim
from robust_diffusion.training import Fit

RESULTS = Path(__file__).with_name("results") / "large.json"

EDGES_PER_NODE = 20
"""Edges of each injected node."""

MODELS = {
    "gcn": GCN,
    "mlp": MLP,
    "beltrami": partial(GraphPDE, flow="beltrami", solver=ONE_STEP, num_layers=3),
}


def main() -> None:
    """Measure, print and record the results."""
    parser = argparse.ArgumentParser(description="Train, attack and evaluate one large graph.")
    parser.add_argument("--dataset", help="this dataset= option")
    parser.add_argument("--graph", help="this file of dataset=custom, for auto instead of SPEIT")
    parser.add_argument("--model", default="gcn", choices=MODELS, help="that auto attacks")
    parser.add_argument("--weights", type=Path, help="its file, written if it is not there")
    parser.add_argument("--nodes", type=int, default=2_000_000, help="else of a drawn graph")
    parser.add_argument("--edges", type=int, default=10_000_000, help="its undirected edges")
    parser.add_argument("--features", type=int, default=64, help="its features")
    parser.add_argument("--flow", default="beltrami", help="of the victim")
    parser.add_argument("--parts", type=int, default=200, help="that METIS cuts")
    parser.add_argument("--joined", type=int, default=10, help="parts per batch")
    parser.add_argument("--epochs", type=int, default=3, help="of each training")
    parser.add_argument("--steps", type=int, default=10, help="of SPEIT or auto")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0, help="of the weights")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    batching = Clusters(given.parts, given.joined)
    if given.graph:
        source = partial(load_custom, given.graph)
        datamodule = GraphDataModule(source, name="graph", difficulty="random:10000")
    elif given.dataset:
        datamodule = load(given.dataset)
        datamodule.batching = batching
    else:
        source = partial(citation_like_graph, given.nodes, given.edges, given.features)
        datamodule = GraphDataModule(source, name="generated", batching=batching)
    found = (_worst_case if given.graph else _measured)(datamodule, given)
    print(json.dumps(found))
    on = given.dataset or f"{given.nodes} nodes, {given.edges} edges"
    on = f"{on}, {given.flow}" if not given.graph else f"{Path(given.graph).stem}, {given.model}"
    recorded = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    recorded[f"{on}, seed {given.seed}"] = found | {
        "options": {key: value for key, value in vars(given).items() if key != "weights"},
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


def _worst_case(datamodule: GraphDataModule, given: argparse.Namespace) -> dict[str, Any]:
    """Train one model, or load it, and run `auto` on it."""
    clock = _Clock()
    datamodule.setup()
    clock("load")
    build = MODELS[given.model]
    if given.weights and given.weights.is_file():
        model = build(datamodule.num_features, 64, out_channels=datamodule.num_classes)
        stored = torch.load(given.weights)
        model.load_state_dict(stored["state"])
        clock.seconds["train"], trained_gib = stored["seconds"], stored["peak_gib"]
    else:
        model = _trained(build, datamodule, given)
        clock("train")
        trained_gib = _peak_gib()
        if given.weights:
            about = {"seconds": clock.seconds["train"], "peak_gib": trained_gib}
            torch.save({"state": model.state_dict(), **about}, given.weights)
    graph, targets = datamodule.graph, datamodule.target_nodes
    victim = Victim.probe(model.eval(), graph.x, graph.edge_index, datamodule.num_classes)
    task, attack = Task(graph, targets, graph.y), AutoInjection(num_steps=given.steps)
    budget = Budget(500, EDGES_PER_NODE).within(targets.numel()).resolve(graph.x)
    forecast = attack.expected_passes(budget, targets.numel())
    clock("probe")
    print(f"auto: {forecast} forward passes expected", flush=True)
    with victim:
        result = measure(victim, task, attack, Bench(budget=budget, threat=WhiteBox()))
    clock("auto")
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges // 2,
        "targets": targets.numel(),
        "epochs": given.epochs,
        "seconds": clock.seconds,
        "processor_seconds": {"auto": clock.processor_seconds["auto"]},
        "accuracy": {"clean": result.clean_accuracy, "auto": result.accuracy},
        "part_accuracy": result.graph.part_accuracy,
        "forwards": result.effort["forwards"],
        "forecast": forecast,
        "peak_gib": {"train": trained_gib, "auto": _peak_gib()},
    }


class _Clock:
    """Stopwatch that prints and stores the seconds of each part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.processor_seconds: dict[str, float] = {}
        self._start, self._busy = time.perf_counter(), time.process_time()

    def __call__(self, part: str) -> None:
        self.seconds[part] = time.perf_counter() - self._start
        self._start += self.seconds[part]
        self.processor_seconds[part] = time.process_time() - self._busy
        self._busy += self.processor_seconds[part]
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
