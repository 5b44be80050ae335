"""Splits by degree as in GRB, and the selection of target nodes."""

import hashlib
import logging
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import degree

from robust_diffusion.checks import Natural, validated
from robust_diffusion.errors import ConfigError, DataError

log = logging.getLogger(__name__)

FEWEST_NODES = 20


def split_by_degree(graph: Data, seed: int, *, where: str | Path) -> Data:
    """Add a split of its labelled nodes to a checked graph; see `degree_split`."""
    n = graph.num_nodes
    labelled = (graph.y >= 0).numpy()
    degree = np.bincount(graph.edge_index[0].numpy(), minlength=n)[labelled]
    for name, index in degree_split(degree, seed, where=where).items():
        graph[f"index_{name}"] = torch.from_numpy(np.flatnonzero(labelled)[index])
    graph.split_drawn = True
    log.info("%s: split drawn by degree, seed %d", where, seed)
    return graph


@validated("dataset.source")
def degree_split(
    degree: NDArray[np.integer], split_seed: Natural = 0, *, where: str | Path = "graph"
) -> dict[str, NDArray[np.int64]]:
    """Split nodes by degree into train, val and three test sets of growing difficulty.

    Nodes are sorted by degree. The lowest and the highest 5 % are never tested. The rest is cut
    into thirds, and 10 % of all nodes are drawn from each third as easy (lowest degrees), medium
    and hard. From the remaining nodes, 60 % of all nodes are drawn for training, and the others are
    for validation. The indices of each part are sorted.

    Reference: GRB, arXiv:2111.04314, section on data splitting.
    """
    if degree.size < FEWEST_NODES:
        raise DataError(
            f"{where}: has {degree.size} nodes, too few to split by degree; it takes at least "
            f"{FEWEST_NODES} with a label, or a split of your own"
        )
    generator = np.random.default_rng(split_seed)
    n = degree.size
    by_degree = np.argsort(degree, kind="stable")
    bounds = [int(n * share) for share in (0.05, 0.35, 0.65, 0.95)]
    tests = {
        f"test_{name}": generator.choice(by_degree[low:high], n // 10, replace=False)
        for name, low, high in zip(("easy", "medium", "hard"), bounds[:-1], bounds[1:], strict=True)
    }
    test = np.concatenate(list(tests.values()))
    is_rest = np.ones(n, dtype=bool)
    is_rest[test] = False
    rest = np.flatnonzero(is_rest)
    train = generator.choice(rest, int(n * 0.6), replace=False)
    is_rest[train] = False
    splits = {"train": train, "val": np.flatnonzero(is_rest), "test": test, **tests}
    return {name: np.sort(index).astype(np.int64) for name, index in splits.items()}


def split_hash(splits: Mapping[str, NDArray[np.int64]]) -> str:
    """Hash sorted node indices by part to 16 hexadecimal digits, the same on every platform."""
    digest = hashlib.sha256()
    for name in sorted(splits):
        digest.update(f"{name}:{splits[name].size}:".encode())
        digest.update(splits[name].astype("<i8").tobytes())
    return digest.hexdigest()[:16]


GRAMMAR = re.compile(r"easy|medium|hard|full|margin:(low|middle|high)|random:(\d{1,9})(:\d{1,9})?")

THIRDS = ("low", "middle", "high")


def check_difficulty(name: object) -> str:
    """Return the name if it is a form of `target_nodes`; raise a `ConfigError` if not."""
    if not isinstance(name, str) or not GRAMMAR.fullmatch(name):
        raise ConfigError(
            f"difficulty={name}: use easy, medium, hard, full, margin:low, margin:middle, "
            "margin:high, random:N or random:N:SEED"
        )
    return name


def target_nodes(graph: Data, name: str, dataset: str) -> Int[Tensor, " t"]:
    """Return the test nodes that a difficulty names, in ascending order.

    The choice of target nodes can change a ranking of models, arXiv:2605.05534. The forms are:

    - easy, medium, hard or full: GRB's test sets.
    - margin:low, middle or high: a third of the test nodes, by the margin of a linear model; see
      `linear_margins`.
    - random:N or random:N:SEED: N test nodes drawn at random.
    """
    kind, _, argument = name.partition(":")
    if not argument:
        key = "index_test" if name == "full" else f"index_test_{name}"
        if key not in graph:
            raise ConfigError(
                f"difficulty={name}: the split of dataset={dataset} has no such test set; use "
                "difficulty=full"
            )
        return graph[key]  # type: ignore[no-any-return]
    nodes: Tensor = graph["index_test"]
    if kind == "margin":
        order = linear_margins(graph)[nodes].argsort(stable=True)
        selected = nodes[order.tensor_split(len(THIRDS))[THIRDS.index(argument)]].sort().values
    else:
        count, _, seed = argument.partition(":")
        generator = torch.Generator().manual_seed(int(seed or 0))
        order = torch.randperm(len(nodes), generator=generator)[: int(count)]
        selected = nodes[order].sort().values if len(order) == int(count) else nodes[:0]
    if not len(selected):
        raise ConfigError(
            f"difficulty={name}: dataset={dataset} has only {len(nodes)} test nodes; use "
            "difficulty=full"
        )
    return selected


def linear_margins(graph: Data, ridge: float = 1.0) -> Float[Tensor, " n"]:
    """Compute the margin of each node's class over the best other one, by a linear model.

    The model is a ridge regression of the classes of the train nodes on features that were
    propagated twice along the edges, with the normalisation of a GCN (SGC, Wu et al. 2019,
    arXiv:1902.07153). It is deterministic and the same for all models, so that they are compared
    at the same nodes.
    """
    n, train = graph.y.numel(), graph["index_train"]
    x = torch.cat([graph.x.double(), torch.ones(n, 1, dtype=torch.double)], 1)
    scale = (degree(graph.edge_index[0], n, dtype=torch.double) + 1).rsqrt()[:, None]
    src, dst = graph.edge_index
    for _ in range(2):
        x = x * scale
        x = scale * x.index_add(0, dst, x[src])
    classes = F.one_hot(graph.y.clamp(min=0)).double()
    gram = x[train].T @ x[train] + ridge * torch.eye(x.size(1), dtype=torch.double)
    scores = x @ torch.linalg.solve(gram, x[train].T @ classes[train])
    label_scores = scores.gather(1, graph.y.clamp(min=0)[:, None]).squeeze(1)
    margin: Tensor = label_scores - scores.masked_fill(classes.bool(), -torch.inf).max(1).values
    return margin
