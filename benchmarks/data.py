"""Time and peak memory of loading, normalising and splitting a graph.

    python benchmarks/data.py                       # every dataset that is there
    python benchmarks/data.py --nodes 1000000 --edges 10000000

Each measurement runs in a process of its own, so that its peak memory is its own. The first read
of a file from disk is not timed: each file is read once before.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from functools import partial

LIMITS = {"coauthor": (5.0, 2.5), "amazon_computer": (5.0, 2.5), "generated": (60.0, 12.0)}
"""Seconds and GiB that a load may take on two cores."""


def measure(overrides: list[str], nodes: int, edges: int, features: int) -> dict[str, float]:
    """Load one graph in this process; return seconds and peak GiB."""
    import torch
    from hydra import compose, initialize_config_dir
    from hydra.utils import instantiate

    from robust_diffusion.config import CONFIG_DIR
    from robust_diffusion.data import GraphDataModule
    from robust_diffusion.data.sources import citation_like_graph

    torch.set_num_threads(2)
    if nodes:
        source = partial(citation_like_graph, nodes, edges, features)
        datamodule = GraphDataModule(source, name="generated")
    else:
        with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            datamodule = instantiate(compose("config", [*overrides, "download=false"]).data)
    start = time.perf_counter()
    datamodule.setup()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"seconds": seconds, "peak_gib": peak, "edges": datamodule.graph.num_edges // 2}


def in_own_process(arguments: list[str]) -> dict[str, float]:
    """Run this file for one measurement."""
    command = [sys.executable, __file__, "--one", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(result.stderr)
    found: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure what the command line asks for and print a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--dataset", help="measure this dataset= option")
    parser.add_argument("--nodes", type=int, default=0, help="measure a generated graph")
    parser.add_argument("--edges", type=int, default=0, help="its undirected edges")
    parser.add_argument("--features", type=int, default=64, help="its features")
    parser.add_argument("--repeat", type=int, default=3, help="runs; the median is printed")
    given = parser.parse_args()
    if given.one:
        overrides = [f"dataset={given.dataset}"]
        print(json.dumps(measure(overrides, given.nodes, given.edges, given.features)))
        return
    if given.nodes:
        size = [f"--nodes={given.nodes}", f"--edges={given.edges}", f"--features={given.features}"]
        cases = {"generated": size}
    elif given.dataset:
        cases = {given.dataset: [f"--dataset={given.dataset}"]}
    else:
        from robust_diffusion.report.datasets import list_datasets

        frame = list_datasets(os.environ.get("ROBUST_DIFFUSION_DATA") or "data")
        present = frame.loc[frame["state"].isin(["present", "built in"]), "dataset"]
        cases = {name: [f"--dataset={name}"] for name in present}
    print("| dataset | edges | seconds | peak GiB | limit | within |")
    print("|---|---|---|---|---|---|")
    for name, arguments in cases.items():
        in_own_process(arguments)
        runs = [in_own_process(arguments) for _ in range(given.repeat)]
        seconds = sorted(run["seconds"] for run in runs)[len(runs) // 2]
        peak = max(run["peak_gib"] for run in runs)
        limit = LIMITS.get(name)
        within = "-" if limit is None else "yes" if seconds < limit[0] and peak < limit[1] else "no"
        text = "-" if limit is None else f"{limit[0]:g} s, {limit[1]:g} GiB"
        print(f"| {name} | {runs[0]['edges']} | {seconds:.2f} | {peak:.2f} | {text} | {within} |")


if __name__ == "__main__":
    main()
