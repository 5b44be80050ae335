"""Test nodes that are scored and attacked: GRB's sets, and others by degree or at random."""

import re

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import degree

from robust_diffusion.errors import ConfigError

GRAMMAR = re.compile(
    r"easy|medium|hard|full|degree:(\d{1,9})-(\d{1,9})|random:(\d{1,9})(:\d{1,9})?"
)


def check_difficulty(name: object) -> str:
    """The name, if it is easy, medium, hard, full, degree:A-B, random:N or random:N:SEED.

    Raises:
        ConfigError: It is none of these.
    """
    if not isinstance(name, str) or not GRAMMAR.fullmatch(name):
        raise ConfigError(
            f"difficulty={name}: use easy, medium, hard, full, degree:A-B for targets of A to B "
            "neighbours, or random:N or random:N:SEED for N of them"
        )
    return name


def target_nodes(graph: Data, name: str, dataset: str) -> Int[Tensor, " t"]:
    """The test nodes that a difficulty names, in ascending order.

    Which nodes are attacked can change a ranking of models, arXiv:2605.05534.

    Args:
        graph: Has `index_test` and, of a split as GRB's, `index_test_easy` and so on.
        name: As of `check_difficulty`; degrees and draws are of all test nodes.
        dataset: For messages.

    Raises:
        ConfigError: The graph has no such test nodes.
    """
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
    else:
        count, _, seed = of.partition(":")
        generator = torch.Generator().manual_seed(int(seed or 0))
        order = torch.randperm(len(nodes), generator=generator)[: int(count)]
        found = nodes[order].sort().values if len(order) == int(count) else nodes[:0]
    if not len(found):
        raise ConfigError(
            f"difficulty={name}: dataset={dataset} has no so many or no such test nodes, of "
            f"{len(nodes)}; use difficulty=full"
        )
    return found
