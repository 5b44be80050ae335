"""Base of injection attacks: the new nodes, and their edges to targets."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks.base import Attack, Classifier, Kind, PerturbedGraph, frozen
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.problem import Problem

DRAWN_AT_ONCE = 2**24
"""Most random numbers that are held at a time while targets are drawn."""


class InjectionAttack(Attack):
    """An attack that adds nodes, each with edges to target nodes."""

    kind: ClassVar[Kind] = "injection"

    def __call__(
        self,
        model: Classifier,
        data: Data,
        target_nodes: Int[Tensor, " t"],
        budget: Budget,
        generator: torch.Generator,
    ) -> PerturbedGraph:
        """Run the attack; see `Attack`."""
        budget = budget.within(target_nodes.numel())
        with frozen(model):
            problem = Problem(self.name, model, data, target_nodes)
            x, edge_index = problem.x, problem.edge_index
            if budget.max_injected_nodes:
                x, edge_index = self.inject(problem, budget, generator)
        return PerturbedGraph(x, edge_index, problem.x.size(0))

    @abstractmethod
    def inject(
        self, problem: Problem, budget: Budget, generator: torch.Generator
    ) -> tuple[Float[Tensor, "m f"], Int[Tensor, "2 e"]]:
        """Features and edges of the graph with its new nodes, of which there is at least one."""


def draw_targets(
    targets: Int[Tensor, " t"], degrees: Sequence[int], generator: torch.Generator
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
    """Append undirected edges from each new node to its targets.

    Args:
        edge_index: Edges so far.
        targets: Target nodes of each new node, distinct for each; at least one new node.
        first_new_node: Number of the first new node; the others follow.
    """
    counts = torch.tensor([row.numel() for row in targets], device=edge_index.device)
    new = torch.arange(first_new_node, first_new_node + len(targets), device=edge_index.device)
    edges = torch.stack([new.repeat_interleave(counts), torch.cat(list(targets))])
    return torch.cat([edge_index, edges, edges.flip(0)], 1)
