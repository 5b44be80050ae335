"""Time of SPEIT and TDGIA against a straightforward implementation in the style of GRB.

    ROBUST_DIFFUSION_DATA=... python benchmarks/attacks.py    # Cora, 50 nodes x 50 edges
    python benchmarks/attacks.py --million                    # 1 million nodes, 10 million edges

Both attack the same trained GCN, and its accuracy after each attack is printed. The runs alternate.
The table shows medians of wall time and, in brackets, of CPU time, to which other programs do not
add. `--million` runs in a separate process, since it measures peak memory.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from statistics import median

import grb_manner
import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch_geometric.data import Data

from robust_diffusion.attacks import SPEIT, TDGIA, Attack, Budget
from robust_diffusion.attacks.audit import audit
from robust_diffusion.models import GCN

BUDGET = Budget(50, 50, (-0.94, 0.94))
TARGETS = {"speit": 2, "tdgia": 10, "tdgia, strict": 10}
"""Required speed-up of each attack over the yardstick."""

LIMIT_GIB = 16.0


def load(dataset: str) -> tuple[Data, torch.Tensor]:
    """Load a graph with normalised features, and its easy test nodes."""
    from hydra import compose, initialize_config_dir
    from hydra.utils import instantiate

    from robust_diffusion.config import CONFIG_DIR

    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        datamodule = instantiate(compose("config", [f"dataset={dataset}", "download=false"]).data)
    return datamodule.graph, datamodule.target_nodes


def train(graph: Data, epochs: int) -> GCN:
    """Train a GCN of the surrogate's size."""
    torch.manual_seed(0)
    model = GCN(graph.num_features, 64, graph.num_classes, num_layers=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        logits = model(graph.x, graph.edge_index)[graph.index_train]
        loss = F.cross_entropy(logits, graph.y[graph.index_train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def accuracy(model: GCN, x: torch.Tensor, edge_index: torch.Tensor, graph: Data) -> float:
    """Compute the accuracy of a model at the easy test nodes, in %."""
    with torch.no_grad():
        hit = model(x, edge_index).argmax(1)[: graph.num_nodes] == graph.y
    return 100 * float(hit[graph.index_test_easy].double().mean())


def compare(dataset: str, steps: int, repeat: int, epochs: int) -> None:
    """Run yardstick and package in turn, and print a table."""
    graph, targets = load(dataset)
    model = train(graph, epochs)
    matrices, biases = ([p for p in model.parameters() if p.ndim == d] for d in (2, 1))
    yardstick = grb_manner.CoordinateGCN(matrices, biases)
    with torch.no_grad():
        ours = model(graph.x, graph.edge_index)
        theirs = yardstick(graph.x, grb_manner.normalized(grb_manner.to_scipy(graph)))
    torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-4)

    def in_grb_manner(attack: Callable[..., tuple[torch.Tensor, sp.coo_matrix]]) -> float:
        x, adjacency = attack(
            yardstick,
            graph,
            targets,
            nodes=BUDGET.max_injected_nodes,
            edges=BUDGET.max_edges_per_injected_node,
            limits=BUDGET.limits,
            steps=steps,
            seed=0,
        )
        edges = torch.from_numpy(np.stack([adjacency.row, adjacency.col])).long()
        return accuracy(model, x, edges, graph)

    def in_package(attack: Attack) -> float:
        known = Data(x=graph.x, edge_index=graph.edge_index)
        perturbed = attack(model, known, targets, BUDGET, torch.Generator().manual_seed(0))
        return accuracy(model, perturbed.x, perturbed.edge_index, graph)

    cases = {
        "speit": (grb_manner.speit, SPEIT(num_steps=steps)),
        "tdgia": (grb_manner.tdgia, TDGIA(num_steps=steps, variant="grb")),
        "tdgia, strict": (grb_manner.tdgia, TDGIA(num_steps=steps)),
    }
    clean = accuracy(model, graph.x, graph.edge_index, graph)
    print(f"{dataset}, 50 nodes x 50 edges, {steps} steps, {torch.get_num_threads()} threads,")
    print(f"{repeat} runs each by turns, medians; the GCN's accuracy at the targets: {clean:.2f} %")
    print(
        "| attack | yardstick s (CPU) | ours s (CPU) | ratio (CPU) | target | within | accuracy |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, (straightforward, attack) in cases.items():
        runs = {
            "yardstick": partial(in_grb_manner, straightforward),
            "ours": partial(in_package, attack),
        }
        wall: dict[str, list[float]] = {who: [] for who in runs}
        cpu: dict[str, list[float]] = {who: [] for who in runs}
        after = {}
        for _ in range(repeat):
            for who, run in runs.items():
                started = time.perf_counter(), time.process_time()
                after[who] = run()
                wall[who].append(time.perf_counter() - started[0])
                cpu[who].append(time.process_time() - started[1])
        seconds = {who: (median(wall[who]), median(cpu[who])) for who in runs}
        ratio, on_cpu = (t / o for t, o in zip(*seconds.values(), strict=True))
        shown = [f"{w:.2f} ({c:.2f})" for w, c in seconds.values()]
        shown += [f"1/{ratio:.1f} (1/{on_cpu:.1f})", f"1/{TARGETS[name]}"]
        shown += ["yes" if on_cpu > TARGETS[name] else "no"]
        print(f"| {name} | {' | '.join(shown)} | {after['yardstick']:.2f} / {after['ours']:.2f} |")


def million(nodes: int, edges: int, features: int) -> dict[str, float]:
    """Run SPEIT on a generated graph in this process, and return seconds and peak GiB."""
    from robust_diffusion.data import GraphDataModule
    from robust_diffusion.data.sources import citation_like_graph

    source = partial(citation_like_graph, nodes, edges, features)
    datamodule = GraphDataModule(source, name="generated")
    graph, targets = datamodule.graph, datamodule.target_nodes
    known = Data(x=graph.x, edge_index=graph.edge_index)
    torch.manual_seed(0)
    model = GCN(features, 16, graph.num_classes, num_layers=2).eval()
    loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start = time.perf_counter()
    perturbed = SPEIT(num_steps=5)(model, known, targets, BUDGET, torch.Generator().manual_seed(0))
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start = time.perf_counter()
    found = audit(known, perturbed, kind="injection", target_nodes=targets, **asdict(BUDGET))
    audited = time.perf_counter() - start
    if found:
        sys.exit("\n".join(violation.message for violation in found))
    return {
        "edges": graph.num_edges // 2,
        "loaded_gib": loaded,
        "seconds": seconds,
        "peak_gib": peak,
        "audit_seconds": audited,
        "audit_peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    """Measure what the command line selects, and print a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--million", action="store_true", help="measure a generated graph instead")
    parser.add_argument("--nodes", type=int, default=1_000_000, help="its nodes")
    parser.add_argument("--edges", type=int, default=10_000_000, help="its undirected edges")
    parser.add_argument("--features", type=int, default=64, help="its features")
    parser.add_argument("--dataset", default="cora", help="dataset= option to compare on")
    parser.add_argument("--steps", type=int, default=100, help="gradient steps (per batch)")
    parser.add_argument("--epochs", type=int, default=100, help="epochs of the attacked GCN")
    parser.add_argument("--repeat", type=int, default=5, help="runs; the median is printed")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if not given.million:
        compare(given.dataset, given.steps, given.repeat, given.epochs)
        return
    if given.one:
        print(json.dumps(million(given.nodes, given.edges, given.features)))
        return
    command = [sys.executable, __file__, "--one", *sys.argv[1:]]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(result.stderr)
    found: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    within = "yes" if found["peak_gib"] < LIMIT_GIB else "no"
    print(f"SPEIT, 50 nodes x 50 edges, 5 steps, {given.threads} threads; generated graph of")
    print(f"{given.nodes} nodes, {found['edges']} undirected edges, {given.features} features")
    print("| | seconds | peak GiB | limit | within |")
    print("|---|---|---|---|---|")
    print(f"| graph loaded | - | {found['loaded_gib']:.2f} | - | - |")
    print(
        f"| attack | {found['seconds']:.2f} | {found['peak_gib']:.2f} | {LIMIT_GIB:g} GiB | "
        f"{within} |"
    )
    print(f"| audit | {found['audit_seconds']:.2f} | {found['audit_peak_gib']:.2f} | - | - |")


if __name__ == "__main__":
    main()
