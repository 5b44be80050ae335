"""Base of modification attacks: edges and pairs at the targets, and flips of undirected edges."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from robust_diffusion.attacks.base import (
    Attack,
    FeaturesAndEdges,
    Kind,
    Task,
    Victim,
    undirected_edge_numbers,
)
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.errors import ConfigError


class ModificationAttack(Attack):
    """An attack that changes existing nodes and edges, only at the target nodes.

    It may change the features of a share of the target nodes. It may also flip (add or remove)
    undirected edges with at least one end at a target; the number of flips is limited to a share of
    the edges that touch a target. All other features and edges stay as they are.
    """

    kind: ClassVar[Kind] = "modification"

    def perturb(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Run the attack; see `Attack`."""
        return self.modify(victim, task, budget, generator)

    @abstractmethod
    def modify(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Return features and edges of the modified graph."""


def edges_at(
    targets: Int[Tensor, " t"], edge_index: Int[Tensor, "2 e"], num_nodes: int
) -> Int[Tensor, "2 u"]:
    """Return the undirected edges u < v with at least one end at a target."""
    src, dst = edge_index
    at_target = membership(targets, num_nodes)
    return edge_index[:, (src < dst) & (at_target[src] | at_target[dst])]


def max_flips(task: Task, budget: Budget) -> int:
    """Return the largest number of undirected edges that the budget lets an attack flip."""
    there = edges_at(task.targets, task.edge_index, task.x.size(0))
    return budget.max_flipped_edges(there.size(1))


def membership(nodes: Int[Tensor, " t"], num_nodes: int) -> Bool[Tensor, " n"]:
    """Return a mask over all nodes that is true at `nodes`."""
    member = torch.zeros(num_nodes, dtype=torch.bool, device=nodes.device)
    member[nodes] = True
    return member


def trained_on(task: Task) -> Bool[Tensor, " n"]:
    """Return a mask of the nodes that a poisoned model is trained on.

    These are `graph.index_train`, or all nodes except the targets if it is missing.
    """
    n, nodes = len(task.x), task.graph.get("index_train")
    train = ~membership(task.targets, n) if nodes is None else membership(nodes, n)
    if not 0 < int(train.sum()) < n:
        raise ConfigError(
            "target nodes: all; the attack trains on others, or on graph.index_train if it is some "
            "of them"
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
    """Flip distinct pairs: remove those that are edges and add the others, in both directions."""
    if not pairs.numel():
        return edge_index
    there, flipped = numbers_of(edge_index, num_nodes), numbers_of(pairs, num_nodes).sort().values
    remaining = edge_index[:, ~torch.isin(there, flipped)]
    added = pairs_of(flipped[~torch.isin(flipped, there)], num_nodes)
    return torch.cat([remaining, added, added.flip(0)], 1)


def numbers_of(pairs: Int[Tensor, "2 p"], num_nodes: int) -> Int[Tensor, " p"]:
    """Number each pair of nodes u < v, in either order, by u n + v."""
    low, high = pairs.aminmax(dim=0)
    return low * num_nodes + high


def pairs_of(numbers: Int[Tensor, " p"], num_nodes: int) -> Int[Tensor, "2 p"]:
    """Return the pairs of these numbers, the smaller node first; see `numbers_of`."""
    return torch.stack([numbers // num_nodes, numbers % num_nodes])


def flipped(
    before: Int[Tensor, "2 e"], after: Int[Tensor, "2 e2"], num_nodes: int
) -> Int[Tensor, "2 p"]:
    """Return the undirected pairs u < v that are edges of one of two graphs alone."""
    ids = torch.cat([undirected_edge_numbers(edges, num_nodes) for edges in (before, after)])
    values, counts = torch.unique(ids, return_counts=True)
    return pairs_of(values[counts == 1], num_nodes)


def feature_range(clean: Float[Tensor, "c f"], budget: Budget) -> tuple[Tensor, Tensor]:
    """Return the smallest and largest value that each of these features may take.

    A value stays within epsilon of the clean one and within the feature limits. If the clean value
    lies outside the limits, it may not move further out.
    """
    smallest, largest = budget.limits
    low, high = clean.clamp(max=smallest), clean.clamp(min=largest)
    return low.maximum(clean - budget.epsilon), high.minimum(clean + budget.epsilon)


def shuffled(columns: Int[Tensor, "2 u"], generator: Generator) -> Int[Tensor, "2 u"]:
    """Return the columns in random order."""
    return columns[:, torch.randperm(columns.size(1), generator=generator).to(columns.device)]


MAX_LISTED = 2**20
"""Most pairs that are enumerated; if there are more, pairs are drawn until enough fit."""
MAX_ROUNDS = 64
"""Rounds of drawing before fewer pairs are accepted."""


@dataclass(frozen=True, eq=False)
class TargetPairs:
    """Numbered undirected pairs of two nodes, at least one of them a target.

    If the nodes are ordered with the targets first, these are the first t rows of an upper
    triangle.
    """

    targets: Int[Tensor, " t"]  # nodes under attack, each once
    num_nodes: int  # number of nodes n

    @cached_property
    def order(self) -> Int[Tensor, " n"]:
        """All nodes, targets first."""
        others = ~membership(self.targets, self.num_nodes)
        return torch.cat([self.targets, others.nonzero().squeeze(1)])

    @property
    def total(self) -> int:
        """Number of pairs."""
        t = self.targets.numel()
        return t * (2 * self.num_nodes - t - 1) // 2

    def __getitem__(self, numbers: Int[Tensor, " p"]) -> Int[Tensor, "2 p"]:
        """Return the pairs with these numbers, in 0..total-1."""
        t, n = self.targets.numel(), self.num_nodes
        rows = torch.arange(t, device=numbers.device)
        ends = (rows + 1) * (n - 1) - rows * (rows + 1) // 2
        row = torch.searchsorted(ends, numbers, right=True)
        column = numbers - ends[row] + n
        return self.order[torch.stack([row, column])]

    def draw_absent(
        self,
        count: int,
        edge_index: Int[Tensor, "2 e"],
        generator: torch.Generator,
        fits: Callable[[Tensor], Bool[Tensor, " p"]] | None = None,
    ) -> Int[Tensor, "2 p"]:
        """Draw distinct pairs that are not edges, uniformly among those that fit.

        Returns fewer than `count` pairs if fewer fit, or if fitting pairs are too rare to draw.
        """
        n, device = self.num_nodes, self.targets.device
        taken = undirected_edge_numbers(edge_index, n)

        def absent(pairs: Tensor) -> Tensor:
            free = ~torch.isin(numbers_of(pairs, n), taken)
            return pairs[:, free if fits is None else free & fits(pairs)]

        if self.total <= MAX_LISTED:
            listed = torch.randperm(self.total, generator=generator).to(device)
            return absent(self[listed])[:, :count]
        numbers = torch.empty(0, dtype=torch.long)
        drawn = self.targets.new_empty(2, 0)
        for _ in range(MAX_ROUNDS):
            if drawn.size(1) >= count:
                break
            more = torch.randint(self.total, (2 * count + 1024,), generator=generator)
            numbers = _first_of_each(torch.cat([numbers, more]))
            drawn = absent(self[numbers.to(device)])
        return drawn[:, :count]


def _first_of_each(numbers: Int[Tensor, " a"]) -> Int[Tensor, " b"]:
    """Remove repeated numbers, keeping the order."""
    values, where = numbers.sort(stable=True)
    first = torch.ones_like(values, dtype=torch.bool)
    first[1:] = values[1:] != values[:-1]
    return numbers[where[first].sort().values]
