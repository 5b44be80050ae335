"""DICE."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
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


class DICE(ModificationAttack):
    """DICE: delete edges inside a class, connect nodes of different classes.

    Deleted edges are drawn uniformly among those that touch a target and join two nodes of one
    class, added ones uniformly among the pairs of different classes with at least one node that is
    a target. What the deletions cannot spend, the additions do. The features stay.

    Reference: Waniek et al. 2018, arXiv:1608.00375; GRB's form, arXiv:2111.04314.

    Args:
        delete_ratio: Share of the flips that delete, in 0..1.

    Raises:
        ConfigError: The share is out of range.

    Deviation: GRB lists as pairs to connect only that of the i-th target and node i, and leaves
    unspent what it cannot delete.

    Examples:
        >>> from robust_diffusion import DICE, GCN, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(edge_ratio=0.2), DICE())
        >>> bool(graph.to_data().injected_mask.any())
        False
    """

    name = "dice"
    needs: ClassVar[frozenset[Need]] = frozenset({"predictions"})
    changes_features: ClassVar[bool] = False

    def __init__(self, *, delete_ratio: Share = 0.6) -> None:
        self.delete_ratio = delete_ratio

    def modify(
        self, problem: Problem, budget: Budget, generator: torch.Generator
    ) -> tuple[Float[Tensor, "n f"], Int[Tensor, "2 e"]]:
        """Delete inside, then connect outside."""
        x, edge_index, labels = problem.x, problem.edge_index, problem.all_labels
        n = x.size(0)

        def differ(pairs: Tensor) -> Bool[Tensor, " p"]:
            return labels[pairs[0]] != labels[pairs[1]]

        there = edges_at(problem.targets, edge_index, n)
        flips = budget.max_flipped_edges(there.size(1))
        inside = shuffled(there[:, ~differ(there)], generator)
        deleted = inside[:, : int(flips * self.delete_ratio)]
        added = TargetPairs(problem.targets, n).draw_absent(
            flips - deleted.size(1), edge_index, generator, differ
        )
        return x, flip(edge_index, torch.cat([deleted, added], 1), n)
