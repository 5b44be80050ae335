"""A large random graph end to end: cut, train on clusters, attack, evaluate.

    python benchmarks/large.py --nodes=2000000 --edges=10000000
    python benchmarks/large.py --dataset=coauthor --epochs=100
    python benchmarks/large.py --graph=wordnet.npz --models gcn mlp beltrami --shares 0.25 0.5 1

Prints one line of JSON with the seconds of each part, accuracies, and the peak memory of the
process, and writes it to `results/large.json`. The surrogate of SPEIT is a GCN; the victim is
Beltrami or GRAND. With a dataset, the same model is also trained on the full batch, to show what
clusters cost in accuracy.

With a graph's file, each model is trained on the full batch and attacked by `auto`, in a process of
its own. Passes and seconds are forecast before the attack. A share below 1 is that of the nodes
which a breadth-first search reaches first; targets and injected nodes shrink in proportion.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from measure import machine
from networks import ONE_STEP, load
from scipy.sparse.csgraph import breadth_first_order
from torch import nn
from torch_geometric.data import Data
from torch_geometric.utils import subgraph, to_scipy_sparse_matrix

from robust_diffusion.attacks import SPEIT, AutoInjection, Budget, Task
from robust_diffusion.data import Clusters, GraphDataModule
from robust_diffusion.data.sources import citation_like_graph, load_custom
from robust_diffusion.data.split import split_by_degree
from robust_diffusion.evaluation import WhiteBox
from robust_diffusion.evaluation.measure import Bench, measure
from robust_diffusion.models import GCN, MLP, GraphPDE
from robust_diffusion.models.victim import Victim
from robust_diffusion.training import Fit

RESULTS = Path(__file__).with_name("results") / "large.json"

EDGES_PER_NODE = 20
"""Edges of each injected node."""

MODELS = {
    "gcn": (GCN, 40),
    "mlp": (MLP, 40),
    "beltrami": (partial(GraphPDE, flow="beltrami", solver=ONE_STEP, num_layers=3), 16),
}
"""Models that `auto` attacks, and epochs that take less than six minutes on all of WordNet."""


def main() -> None:
    """Measure, print and record the results."""
    parser = argparse.ArgumentParser(description="Train, attack and evaluate one large graph.")
    parser.add_argument("--dataset", help="this dataset= option")
    parser.add_argument("--graph", help="this file of dataset=custom, for auto instead of SPEIT")
    parser.add_argument("--models", nargs="+", default=["gcn"], choices=MODELS, help="under auto")
    parser.add_argument("--shares", nargs="+", type=float, default=[1.0], help="of the nodes")
    parser.add_argument("--targets", type=int, default=10_000, help="of auto on the whole file")
    parser.add_argument("--injected", type=int, default=500, help="nodes that auto injects there")
    parser.add_argument("--weights", type=Path, default=Path("build"), help="folder of models")
    parser.add_argument("--nodes", type=int, default=2_000_000, help="else of a drawn graph")
    parser.add_argument("--edges", type=int, default=10_000_000, help="its undirected edges")
    parser.add_argument("--features", type=int, default=64, help="its features")
    parser.add_argument("--flow", default="beltrami", help="of the victim")
    parser.add_argument("--parts", type=int, default=200, help="that METIS cuts")
    parser.add_argument("--joined", type=int, default=10, help="parts per batch")
    parser.add_argument("--epochs", type=int, help="of each training; 3, or those of `MODELS`")
    parser.add_argument("--steps", type=int, default=12, help="of SPEIT or auto")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0, help="of the weights")
    given = parser.parse_args()
    if given.graph and len(given.models) * len(given.shares) > 1:
        for model, share in product(given.models, given.shares):
            # Later options override earlier ones.
            alone = [*sys.argv[1:], "--models", model, "--shares", str(share)]
            subprocess.run([sys.executable, __file__, *alone], check=True)
        return
    torch.set_num_threads(given.threads)
    (model,), (share,) = given.models, given.shares
    given.epochs = given.epochs or (MODELS[model][1] if given.graph else 3)
    batching = Clusters(given.parts, given.joined)
    if given.graph:
        source = partial(_cut, given.graph, share)
        difficulty = f"random:{round(share * given.targets)}"
        datamodule = GraphDataModule(source, name="graph", difficulty=difficulty)
    elif given.dataset:
        datamodule = load(given.dataset)
        datamodule.batching = batching
    else:
        source = partial(citation_like_graph, given.nodes, given.edges, given.features)
        datamodule = GraphDataModule(source, name="generated", batching=batching)
    found = (_worst_case if given.graph else _measured)(datamodule, given)
    print(json.dumps(found))
    on = given.dataset or f"{given.nodes} nodes, {given.edges} edges"
    if given.graph:
        attack = f"{given.injected} x {EDGES_PER_NODE} at {given.targets}"
        on = f"{Path(given.graph).stem}, {model}, {attack}, {share:.0%} of the nodes"
    else:
        on = f"{on}, {given.flow}"
    recorded = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    options = {key: value for key, value in vars(given).items() if key != "weights"}
    options["graph"] = given.graph and Path(given.graph).name  # its folder is of this machine
    recorded[f"{on}, seed {given.seed}"] = found | {
        "options": options,
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
        "peak_gib": max(clock.peak_gib.values()),
    }
    if given.dataset:
        whole = load(given.dataset)
        model = _trained(victim, whole, given)
        clock(f"train {given.flow}, full batch")
        accuracy["clean, full batch"] = _accuracy(model, graph, graph.x, graph.edge_index, targets)
    return found


def _cut(path: str, share: float) -> Data:
    """Read a graph; return the part that a breadth-first search from its first node reaches."""
    graph = load_custom(path)
    if share == 1:
        return graph
    adjacency = to_scipy_sparse_matrix(graph.edge_index, num_nodes=graph.num_nodes)
    reached = breadth_first_order(adjacency, 0, return_predecessors=False)
    nodes = torch.from_numpy(reached[: round(share * graph.num_nodes)]).long().sort().values
    edges, _ = subgraph(nodes, graph.edge_index, relabel_nodes=True, num_nodes=graph.num_nodes)
    part = Data(x=graph.x[nodes], y=graph.y[nodes], edge_index=edges)
    part.num_classes = graph.num_classes
    return split_by_degree(part, 0, where=path)


def _worst_case(datamodule: GraphDataModule, given: argparse.Namespace) -> dict[str, Any]:
    """Train one model, or load it, forecast `auto` on it, and run it."""
    clock = _Clock()
    datamodule.setup()
    clock("load")
    (name,), (share,) = given.models, given.shares
    build, _ = MODELS[name]
    file = given.weights / f"{Path(given.graph).stem}-{name}-{share}-{given.epochs}-{given.seed}.pt"
    if not file.is_file():
        given.weights.mkdir(parents=True, exist_ok=True)
        model = _trained(build, datamodule, given)
        clock("train")
        about = {"seconds": clock.seconds["train"], "peak_gib": clock.peak_gib["train"]}
        torch.save({"state": model.state_dict(), **about}, file)
        # The attack starts in a new process, whose memory holds nothing of the training.
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606
    model = build(datamodule.num_features, 64, out_channels=datamodule.num_classes)
    stored = torch.load(file)
    model.load_state_dict(stored["state"])
    clock.seconds["train"], clock.peak_gib["train"] = stored["seconds"], stored["peak_gib"]
    graph, targets = datamodule.graph, datamodule.target_nodes
    victim = Victim.probe(model.eval(), graph.x, graph.edge_index, datamodule.num_classes)
    task, attack = Task(graph, targets, graph.y), AutoInjection(num_steps=given.steps)
    budget = Budget(round(share * given.injected), EDGES_PER_NODE)
    budget = budget.within(targets.numel()).resolve(graph.x)
    with victim:
        passes = attack.expected_passes(budget, task, victim)
        clock("probe")
        seconds = passes * _seconds_of_a_pass(victim, task, budget.max_injected_nodes)
        clock("forecast")
        print(f"auto: {passes} forward passes and {seconds:.0f} s expected", flush=True)
        result = measure(victim, task, attack, Bench(budget=budget, threat=WhiteBox()))
    clock("auto")
    forwards = result.effort["forwards"]
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges // 2,
        "targets": targets.numel(),
        "injected": budget.max_injected_nodes,
        "epochs": given.epochs,
        "seconds": clock.seconds,
        "processor_seconds": clock.processor_seconds,
        "accuracy": {"clean": result.clean_accuracy, "auto": result.accuracy},
        "part_accuracy": result.graph.part_accuracy,
        "forwards": forwards,
        "forecast": {"forwards": passes, "seconds": seconds},
        "measured_by_forecast": {
            "forwards": forwards / passes,
            "seconds": clock.seconds["auto"] / seconds,
        },
        "peak_gib": clock.peak_gib,
    }


def _seconds_of_a_pass(victim: Victim, task: Task, injected: int, repeat: int = 3) -> float:
    """Return the seconds of a forward pass with injected nodes on new edges, and its gradient."""
    for timed in (False, True):
        start = time.perf_counter()
        for _ in range(repeat if timed else 1):
            free = task.x[:injected].clone().requires_grad_()
            edges = task.edge_index.clone()  # since sorted edges are kept by the tensor
            victim(victim.with_rows(free), edges)[task.targets].sum().backward()
    return (time.perf_counter() - start) / repeat


class _Clock:
    """Prints and stores the seconds and the peak memory of each part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peak_gib: dict[str, float] = {}
        self.processor_seconds: dict[str, float] = {}
        self._start, self._busy = time.perf_counter(), time.process_time()

    def __call__(self, part: str) -> None:
        self.seconds[part] = time.perf_counter() - self._start
        self._start += self.seconds[part]
        self.processor_seconds[part] = time.process_time() - self._busy
        self._busy += self.processor_seconds[part]
        self.peak_gib[part] = _peak_gib()
        print(f"{part}: {self.seconds[part]:.1f} s, {self.peak_gib[part]:.2f} GiB", flush=True)


def _peak_gib() -> float:
    """Return the peak memory of the process since the last call."""
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    return int(peak[1]) / 2**20 if peak else float("nan")


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
