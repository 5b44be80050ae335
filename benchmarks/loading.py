"""Seconds and peak memory of loading, normalising and splitting one graph, as one line of JSON.

    ROBUST_DIFFUSION_DATA=... python benchmarks/loading.py --dataset=coauthor
    python benchmarks/loading.py --nodes=1000000 --edges=10000000

The peak is that of the whole process, so each measurement needs a separate process.
"""

import argparse
import json
import resource
import time
from functools import partial

import torch
from networks import load

from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.sources import citation_like_graph


def main() -> None:
    """Load the graph, and print seconds and peak memory."""
    parser = argparse.ArgumentParser(description="Measure the loading of one graph.")
    parser.add_argument("--dataset", default="synthetic", help="this dataset= option")
    parser.add_argument("--nodes", type=int, default=0, help="instead, draw a graph of that size")
    parser.add_argument("--edges", type=int, default=0, help="its undirected edges")
    parser.add_argument("--features", type=int, default=64, help="its features")
    given = parser.parse_args()
    torch.set_num_threads(2)
    if given.nodes:
        source = partial(citation_like_graph, given.nodes, given.edges, given.features)
        datamodule = GraphDataModule(source, name="generated")
    else:
        datamodule = load(given.dataset)
    start = time.perf_counter()
    datamodule.setup()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    edges = datamodule.graph.num_edges // 2
    print(json.dumps({"seconds": seconds, "peak_gib": peak, "edges": edges}))


if __name__ == "__main__":
    main()
