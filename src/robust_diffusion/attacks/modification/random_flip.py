"""Random flips."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.attacks.base import Need
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.modification.base import (
    ModificationAttack,
    edges_at,
    flip,
    shuffled,
)
from robust_diffusion.attacks.modification.pairs import TargetPairs
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.checks import Share


class RandomFlip(ModificationAttack):
    """Random flips: edges at the targets removed and added at random.

    Removed edges are drawn uniformly among those that touch a target, added ones uniformly among
    the pairs of nodes that are none and include at least one target. The features stay, and
    the model is not looked at: the control beside every modification attack.

    Reference: of this project.

    Args:
        add_ratio: Share of the flips that add an edge, in 0..1. Flips drawn uniformly among all
            pairs would next to never remove one.

    Raises:
        ConfigError: The share is out of range.

    Examples:
        >>> from robust_diffusion import GCN, Budget, RandomFlip, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(edge_ratio=0.2), RandomFlip())
        >>> bool(graph.to_data().injected_mask.any())
        False
    """

    name = "random_flip"
    needs: ClassVar[frozenset[Need]] = frozenset()
    changes_features: ClassVar[bool] = False

    def __init__(self, *, add_ratio: Share = 0.5) -> None:
        self.add_ratio = add_ratio

    def modify(
        self, problem: Problem, budget: Budget, generator: torch.Generator
    ) -> tuple[Float[Tensor, "n f"], Int[Tensor, "2 e"]]:
        """Draw the edges to remove, then those to add."""
        x, edge_index, n = problem.x, problem.edge_index, problem.x.size(0)
        there = edges_at(problem.targets, edge_index, n)
        flips = budget.max_flipped_edges(there.size(1))
        num_added = round(flips * self.add_ratio)
        removed = shuffled(there, generator)[:, : flips - num_added]
        added = TargetPairs(problem.targets, n).draw_absent(num_added, edge_index, generator)
        return x, flip(edge_index, torch.cat([removed, added], 1), n)
