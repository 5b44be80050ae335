"""Perturbed graphs from files that other projects have published."""

import re
from collections.abc import Iterator, Mapping
from math import nan
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch_geometric.utils import coalesce

from robust_diffusion.attacks import PerturbedGraph, Task
from robust_diffusion.attacks.audit.check import Violation, audit
from robust_diffusion.attacks.audit.files import ReadGraph, perturbed_files, read_perturbed
from robust_diffusion.attacks.base import clean_graph, undirected_edge_numbers
from robust_diffusion.attacks.modification.base import flip, numbers_of
from robust_diffusion.data.files import read_npz, reading
from robust_diffusion.data.validate import check_edge_index
from robust_diffusion.errors import DataError
from robust_diffusion.evaluation.flags import CONTROLS

FLIPPED = re.compile(r"([^/]+)/perturbations/evasion/([^/]+)/split_(\d+)/(.+)")
SPLIT = re.compile(r"(?P<name>[^/]+)/splits/(?P<split>\d+)/test")
"""Keys in the file of arXiv:2301.13694: a list of flips by graph, model, split and budget, and the
test nodes of a split."""


FOREIGN = frozenset(
    [
        *("another_graph", "changed_elsewhere", "original_features"),
        *("original_edges_added", "original_edges_removed", "index_out_of_range"),
    ]
)
"""Violations by which a graph was made from another clean graph; no budget allows them."""

KnownGraph = tuple[str, str, float, PerturbedGraph]
"""Model that a graph was crafted on, attack, accuracy of that model (NaN if unknown), and graph."""


def graphs_in(path: Path, task: Task) -> Iterator[KnownGraph]:
    """Yield the perturbed graphs of a file or a folder.

    The path is either `unit_test.npz` of arXiv:2301.13694, of which only the split with the
    task's targets as test nodes is read; or adjacencies in the formats of `read_perturbed`, as
    written by GRB and DeepRobust. No code in a file is executed.

    Raises:
        DataError: A file cannot be read, or belongs to another clean graph or split.
    """
    if path.suffix == ".npz" and "adj" not in path.stem:
        yield from _flipped(path, task)
        return
    for file in perturbed_files(path):
        graph = read_perturbed(file, task.graph)
        if graph.attack in {attack.name for attack in CONTROLS.values()}:
            continue  # the random control is no attack
        n = task.graph.num_nodes
        for violation in [*graph.violations, *_foreign(graph, task)]:
            if violation.code != "duplicate_edge":  # GRB draws some edges twice; each counts once
                raise DataError(f"{file}: {violation.message}")
        if graph.labels is not None and not torch.equal(
            graph.labels[:n].cpu(), task.graph["y"].cpu()
        ):
            raise DataError(
                f"{file}: expected the labels of the clean graph, got others; name the dataset "
                "that was attacked"
            )
        yield file.name, graph.kind, nan, PerturbedGraph(graph.x, coalesce(graph.edge_index), n)


def _foreign(graph: ReadGraph, task: Task) -> Iterator[Violation]:
    """Yield the violations by which a graph was made from another clean graph."""
    # With no flip allowed, a graph that shares fewer than half of the edges is reported.
    found = audit(
        task.graph, graph, kind=graph.kind, edge_ratio=0.0, target_nodes=task.targets.cpu()
    )
    yield from (violation for violation in found if violation.code in FOREIGN)


def _flipped(path: Path, task: Task) -> Iterator[KnownGraph]:
    """Yield the graphs of the task's split, fewest flips first."""
    arrays, (x, edge_index) = read_npz(path), clean_graph(task.graph)
    place = _place(arrays, task, path)
    keys = [
        match for key in arrays if (match := FLIPPED.fullmatch(key)) and match.group(1, 3) == place
    ]
    for key in sorted(keys, key=lambda match: (match[2], len(arrays[match[0]]))):
        flips = arrays[key[0]].T
        check_edge_index(flips, len(x), where=path)
        pairs = torch.from_numpy(flips.astype("int64")).to(edge_index.device)
        attacked = flip(edge_index, pairs, len(x))
        yield key[2], key[4].replace("_", " "), nan, PerturbedGraph(x, attacked, len(x))


def _place(arrays: Mapping[str, NDArray[Any]], task: Task, path: Path) -> tuple[str, str]:
    """Find the name of the task's graph in the file, and its split."""
    n, (_, edge_index) = int(task.graph.num_nodes or 0), clean_graph(task.graph)
    clean_edges = undirected_edge_numbers(edge_index.cpu(), n)
    targets = task.targets.cpu().sort().values
    for key in arrays:
        match = SPLIT.fullmatch(key)
        edges = arrays.get(f"{match['name']}/dataset/adjacency") if match else None
        if match is None or edges is None:
            continue
        with reading(path):
            test, pairs = (torch.from_numpy(a.astype("int64")) for a in (arrays[key], edges.T))
            listed = torch.unique(numbers_of(pairs, n))
            if torch.equal(listed, clean_edges) and torch.equal(test.sort().values, targets):
                return match["name"], match["split"]
    raise DataError(
        f"{path}: none of its graphs and splits has these {clean_edges.numel()} edges and "
        f"{targets.numel()} target nodes; use dataset=defense_test_cora_ml or defense_test_citeseer"
    )
