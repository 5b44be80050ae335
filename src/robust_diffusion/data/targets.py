"""Test nodes that are scored and attacked: GRB's sets, and others by degree, margin or draw."""

import re
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import degree

from robust_diffusion.data.files import read_npy, reading
from robust_diffusion.data.validate import node_numbers
from robust_diffusion.errors import ConfigError, DataError

GRAMMAR = re.compile(
    r"easy|medium|hard|full|degree:(\d{1,9})-(\d{1,9})|margin:(low|middle|high)"
    r"|random:(\d{1,9})(:\d{1,9})?|.+\.(txt|npy)"
)

THIRDS = ("low", "middle", "high")


def check_difficulty(name: object) -> str:
    """The name, if it is easy, medium, hard, full, one of the forms of `target_nodes`, or a file.

    Raises:
        ConfigError: It is none of these.
    """
    if not isinstance(name, str) or not GRAMMAR.fullmatch(name):
        raise ConfigError(
            f"difficulty={name}: use easy, medium, hard, full, degree:A-B for targets of A to B "
            "neighbours, margin:low, margin:middle or margin:high, random:N or random:N:SEED for N "
            "of them, or a file of node numbers, .txt or .npy, or of a boolean mask, .npy"
        )
    return name


def target_nodes(graph: Data, name: str, dataset: str) -> Int[Tensor, " t"]:
    """The test nodes that a difficulty names, in ascending order.

    Which nodes are attacked can change a ranking of models, arXiv:2605.05534.

    Args:
        graph: Has `index_test` and, of a split as GRB's, `index_test_easy` and so on.
        name: GRB's easy, medium, hard, or full; or, of all test nodes, degree:A-B, those of A to B
            neighbours; margin:low, middle or high, a third of them by how surely a linear model
            has them right (`linear_margins`); random:N:SEED, N drawn. Or a file of node numbers,
            each once, or of a boolean mask (.npy) of all nodes.
        dataset: For messages.

    Raises:
        ConfigError: The graph has no such test nodes.
        DataError: The file is missing, or names a node twice or one that is no test node.
    """
    if name.endswith((".txt", ".npy")):
        return _from_file(Path(name), graph)
    kind, _, of = name.partition(":")
    if not of:
        key = "index_test" if name == "full" else f"index_test_{name}"
        if key not in graph:
            raise ConfigError(
                f"difficulty={name}: the split of dataset={dataset} has no such test set; use "
                "difficulty=full"
            )
        return graph[key]  # type: ignore[no-any-return]
    nodes: Tensor = graph["index_test"]
    if kind == "degree":
        low, high = map(int, of.split("-"))
        degrees = degree(graph["edge_index"][0], graph.num_nodes)[nodes]
        found = nodes[(degrees >= low) & (degrees <= high)]
    elif kind == "margin":
        order = linear_margins(graph)[nodes].argsort(stable=True)
        found = nodes[order.tensor_split(len(THIRDS))[THIRDS.index(of)]].sort().values
    else:
        count, _, seed = of.partition(":")
        generator = torch.Generator().manual_seed(int(seed or 0))
        order = torch.randperm(len(nodes), generator=generator)[: int(count)]
        found = nodes[order].sort().values if len(order) == int(count) else nodes[:0]
    if not len(found):
        raise ConfigError(
            f"difficulty={name}: dataset={dataset} has too few or no such test nodes, of "
            f"{len(nodes)}; use difficulty=full"
        )
    return found


def linear_margins(graph: Data, ridge: float = 1.0) -> Float[Tensor, " n"]:
    """Score of each node's own class above the best other one, by a linear model of the graph.

    The model is a ridge regression of the classes of the train nodes on features that were passed
    twice over the edges, normalised as a GCN does (SGC, Wu et al. 2019, arXiv:1902.07153). It has
    no seed, and is the same for all models, so that they are compared at the same nodes.

    Args:
        graph: Has x, y, undirected edge_index, and `index_train`.
        ridge: Weight of the squared coefficients, above 0.
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
    own = scores.gather(1, graph.y.clamp(min=0)[:, None]).squeeze(1)
    margin: Tensor = own - scores.masked_fill(classes.bool(), -torch.inf).max(1).values
    return margin


def _from_file(path: Path, graph: Data) -> Int[Tensor, " t"]:
    if path.suffix == ".npy":
        given = read_npy(path).ravel()
    else:
        with reading(f"difficulty={path}", "write node numbers, one a line"):
            given = np.array(path.read_text().split(), float)
    if given.dtype.kind == "f" and (given % 1 == 0).all():  # as np.savetxt writes them
        given = given.astype(np.int64)
    found = node_numbers(given, graph.num_nodes or 0, f"difficulty={path}")
    nodes: Tensor = graph["index_test"]
    if len(wrong := found[~torch.isin(found, nodes)]):
        raise DataError(
            f"difficulty={path}: node {int(wrong[0])} is none of the {len(nodes)} test nodes"
        )
    return found
