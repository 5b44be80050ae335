"""Base of injection attacks: the new nodes, and their edges to targets; and one at random."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from robust_diffusion.attacks.base import Attack, FeaturesAndEdges, Kind, Need
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.problem import Problem

DRAWN_AT_ONCE = 2**24
"""Most random numbers that are held at a time while targets are drawn."""


class InjectionAttack(Attack):
    """An attack that adds nodes, each with edges to target nodes."""

    kind: ClassVar[Kind] = "injection"

    def perturb(self, problem: Problem, budget: Budget, generator: Generator) -> FeaturesAndEdges:
        """Run the attack if a node may be injected; see `Attack`."""
        if not budget.max_injected_nodes:
            return problem.x, problem.edge_index
        return self.inject(problem, budget, generator)

    @abstractmethod
    def inject(self, problem: Problem, budget: Budget, generator: Generator) -> FeaturesAndEdges:
        """Features and edges of the graph with its new nodes, of which there is at least one."""


def draw_targets(
    targets: Int[Tensor, " t"], degrees: Sequence[int], generator: Generator
) -> list[Int[Tensor, "_"]]:
    """Draw distinct targets uniformly for each new node."""
    t, most = targets.numel(), max(degrees, default=0)
    rows = []
    # Block by block, which draws the same numbers as all at once.
    block = max(1, DRAWN_AT_ONCE // t)
    for first in range(0, len(degrees), block):
        size = min(block, len(degrees) - first)
        drawn = torch.rand(size, t, generator=generator, dtype=torch.float32).argsort(1)[:, :most]
        rows += list(targets[drawn.to(targets.device)])
    return [row[:count] for row, count in zip(rows, degrees, strict=True)]


def connect(
    edge_index: Int[Tensor, "2 e"], targets: Sequence[Int[Tensor, "_"]], first_new_node: int
) -> Int[Tensor, "2 e2"]:
    """Append undirected edges from each new node to its targets; there is one new node at least."""
    counts = torch.tensor([row.numel() for row in targets], device=edge_index.device)
    new = torch.arange(first_new_node, first_new_node + len(targets), device=edge_index.device)
    edges = torch.stack([new.repeat_interleave(counts), torch.cat(list(targets))])
    return torch.cat([edge_index, edges, edges.flip(0)], 1)


class RandomInjection(InjectionAttack):
    """Random injection: random edges, random features; the control beside every injection attack.

    Each new node gets edges to uniformly drawn, distinct target nodes. Its features are normal of
    mean 0, their standard deviation the largest magnitude that the limits allow, clamped to the
    limits: about a third of them end at a limit. The model is not looked at.

    Reference: RAND of GRB, arXiv:2111.04314.

    Deviation: GRB's standard deviation is the upper limit, which is the same where the limits are
    symmetric, and none at all where no feature may be positive.

    Examples:
        >>> from robust_diffusion import RandomInjection
        >>> RandomInjection().kind
        'injection'
    """

    name = "random"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def inject(self, problem: Problem, budget: Budget, generator: Generator) -> FeaturesAndEdges:
        """Draw the edges, then the features."""
        x, (low, high) = problem.x, budget.limits
        rows = draw_targets(problem.targets, budget.injected_degrees, generator)
        drawn = torch.randn(len(rows), x.size(1), generator=generator, dtype=torch.float32).to(x)
        features = (drawn * max(-low, high)).clamp(low, high)
        return torch.cat([x, features]), connect(problem.edge_index, rows, x.size(0))
