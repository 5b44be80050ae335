"""Base of modification attacks: edges at the targets, and flips of undirected edges."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from robust_diffusion.attacks.base import Attack, Graph, Kind, undirected_edge_numbers
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.errors import ConfigError


class ModificationAttack(Attack):
    """An attack that changes the graph in place, at the target nodes alone.

    It may change the features of a share of the target nodes, and flip, that is add or remove,
    undirected edges with at least one end at a target; the number of flips is a share of the
    edges that touch a target. All other features and edges stay as they are.
    """

    kind: ClassVar[Kind] = "modification"

    def perturb(self, problem: Problem, budget: Budget, generator: Generator) -> Graph:
        """Run the attack; see `Attack`."""
        return self.modify(problem, budget, generator)

    @abstractmethod
    def modify(self, problem: Problem, budget: Budget, generator: Generator) -> Graph:
        """Features and edges of the modified graph."""


def edges_at(
    targets: Int[Tensor, " t"], edge_index: Int[Tensor, "2 e"], num_nodes: int
) -> Int[Tensor, "2 u"]:
    """The undirected edges u < v with at least one end at a target.

    Args:
        targets: Nodes under attack.
        edge_index: Edges, both directions.
        num_nodes: Number of nodes.
    """
    src, dst = edge_index
    at_target = membership(targets, num_nodes)
    return edge_index[:, (src < dst) & (at_target[src] | at_target[dst])]


def max_flips(problem: Problem, budget: Budget) -> int:
    """Most undirected edges that a budget lets an attack flip."""
    there = edges_at(problem.targets, problem.edge_index, problem.x.size(0))
    return budget.max_flipped_edges(there.size(1))


def membership(nodes: Int[Tensor, " t"], num_nodes: int) -> Bool[Tensor, " n"]:
    """Mask over all nodes of those among `nodes`."""
    member = torch.zeros(num_nodes, dtype=torch.bool, device=nodes.device)
    member[nodes] = True
    return member


def trained_on(problem: Problem) -> Bool[Tensor, " n"]:
    """Nodes that a poisoned victim is trained on: `data.index_train`, or all that are no targets.

    Raises:
        ConfigError: These are all nodes, or none.
    """
    n, nodes = len(problem.x), problem.data.get("index_train")
    train = ~membership(problem.targets, n) if nodes is None else membership(nodes, n)
    if not 0 < int(train.sum()) < n:
        raise ConfigError(
            f"target nodes: all; {problem.attack} trains on others, or on data.index_train if it "
            "is some of them"
        )
    return train


def glorot(shape: Sequence[int], generator: Generator) -> Float[Tensor, "..."]:
    """Draw a matrix by Glorot's uniform rule; further dimensions count as columns."""
    bound = (6 / (shape[0] + math.prod(shape[1:]))) ** 0.5
    drawn = torch.empty(*shape, dtype=torch.float32)
    return drawn.uniform_(-bound, bound, generator=generator)


def flip(
    edge_index: Int[Tensor, "2 e"], pairs: Int[Tensor, "2 p"], num_nodes: int
) -> Int[Tensor, "2 e2"]:
    """Remove those of the pairs that are edges, and add the others, in both directions.

    Args:
        edge_index: Edges, both directions, without self-loops or duplicates.
        pairs: Different undirected pairs of different nodes.
        num_nodes: Number of nodes n.
    """
    if not pairs.numel():
        return edge_index
    low, high = edge_index.aminmax(dim=0)
    flipped = undirected_edge_numbers(torch.cat([pairs, pairs.flip(0)], 1), num_nodes)
    there = low * num_nodes + high
    kept = edge_index[:, ~torch.isin(there, flipped)]
    ids = flipped[~torch.isin(flipped, there)]
    added = torch.stack([ids // num_nodes, ids % num_nodes])
    return torch.cat([kept, added, added.flip(0)], 1)


def flipped(
    before: Int[Tensor, "2 e"], after: Int[Tensor, "2 e2"], num_nodes: int
) -> Int[Tensor, "2 p"]:
    """The undirected pairs u < v that are edges of one of two graphs alone.

    Args:
        before: Edges, both directions.
        after: The same of the other graph.
        num_nodes: Number of nodes n of both.
    """
    ids = torch.cat([undirected_edge_numbers(edges, num_nodes) for edges in (before, after)])
    values, counts = torch.unique(ids, return_counts=True)
    once = values[counts == 1]
    return torch.stack([once // num_nodes, once % num_nodes])


def feature_range(clean: Float[Tensor, "c f"], budget: Budget) -> tuple[Tensor, Tensor]:
    """Smallest and largest value that each of these features may take.

    Within epsilon of the clean one and within the feature limits, or, if it lies outside them, no
    further out.
    """
    smallest, largest = budget.limits
    low, high = clean.clamp(max=smallest), clean.clamp(min=largest)
    return low.maximum(clean - budget.epsilon), high.minimum(clean + budget.epsilon)


def shuffled(columns: Int[Tensor, "2 u"], generator: Generator) -> Int[Tensor, "2 u"]:
    """The columns in random order."""
    return columns[:, torch.randperm(columns.size(1), generator=generator).to(columns.device)]
