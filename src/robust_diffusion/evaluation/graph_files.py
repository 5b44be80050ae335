"""Perturbed graphs that others made, from their files, as data."""

import re
from collections.abc import Iterator, Mapping
from math import nan
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from robust_diffusion.attacks import PerturbedGraph
from robust_diffusion.attacks.audit.files import perturbed_files, read_perturbed
from robust_diffusion.attacks.base import clean_graph, undirected_edge_numbers
from robust_diffusion.attacks.modification.base import flip, numbers_of
from robust_diffusion.data.files import read_npz, reading
from robust_diffusion.data.validate import check_edge_index
from robust_diffusion.errors import DataError
from robust_diffusion.evaluation.evaluate_model import Subject

FLIPS = re.compile(r"([^/]+)/perturbations/evasion/([^/]+)/split_(\d+)/(.+)")
SPLIT = re.compile(r"(?P<name>[^/]+)/splits/(?P<split>\d+)/test")
"""Keys of arXiv:2301.13694: graph, model, split, budget of a list of flips; and test nodes."""


KnownGraph = tuple[str, str, float, PerturbedGraph]
"""Model that a graph was crafted on, attack, accuracy of that model, NaN if unknown; the graph."""


def graphs_in(path: Path, subject: Subject) -> Iterator[KnownGraph]:
    """Yield the perturbed graphs of a file or a folder.

    Either `unit_test.npz` of arXiv:2301.13694, of which only the split counts whose test nodes are
    the subject's targets; or adjacencies that `read_perturbed` reads, as GRB and DeepRobust write
    them. Nothing in a file is run.

    Raises:
        DataError: A file that cannot be read, or that is of another clean graph or split.
    """
    if path.suffix == ".npz" and "adj" not in path.stem:
        yield from _flipped(path, subject)
        return
    for file in perturbed_files(path):
        graph = read_perturbed(file, subject.graph, merge_duplicates=True)
        for violation in graph.violations:
            raise DataError(f"{file}: {violation.message}")
        n = subject.graph.num_nodes
        yield file.name, graph.kind, nan, PerturbedGraph(graph.x, graph.edge_index, n)


def _flipped(path: Path, subject: Subject) -> Iterator[KnownGraph]:
    """Yield the graphs of the subject's split, fewest flips first."""
    arrays, (x, edge_index) = read_npz(path), clean_graph(subject.graph)
    place = _place(arrays, subject, path)
    keys = [
        match for key in arrays if (match := FLIPS.fullmatch(key)) and match.group(1, 3) == place
    ]
    for key in sorted(keys, key=lambda match: (match[2], len(arrays[match[0]]))):
        flips = arrays[key[0]].T
        check_edge_index(flips, len(x), where=path)
        pairs = torch.from_numpy(flips.astype("int64")).to(edge_index.device)
        attacked = flip(edge_index, pairs, len(x))
        yield key[2], key[4].replace("_", " "), nan, PerturbedGraph(x, attacked, len(x))


def _place(arrays: Mapping[str, NDArray[Any]], subject: Subject, path: Path) -> tuple[str, str]:
    """The name of the subject's graph in the file, and its split."""
    n, (_, edge_index) = int(subject.graph.num_nodes or 0), clean_graph(subject.graph)
    own = undirected_edge_numbers(edge_index.cpu(), n)
    targets = subject.targets.cpu().sort().values
    for key in arrays:
        of = SPLIT.fullmatch(key)
        edges = arrays.get(f"{of['name']}/dataset/adjacency") if of else None
        if of is None or edges is None:
            continue
        with reading(path):
            test, pairs = (torch.from_numpy(a.astype("int64")) for a in (arrays[key], edges.T))
            listed = torch.unique(numbers_of(pairs, n))
            if torch.equal(listed, own) and torch.equal(test.sort().values, targets):
                return of["name"], of["split"]
    raise DataError(
        f"{path}: none of its graphs and splits has these {own.numel()} edges and "
        f"{targets.numel()} target nodes; use dataset=defense_test_cora_ml or defense_test_citeseer"
    )
