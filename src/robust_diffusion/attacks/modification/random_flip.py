"""Random flips of edges, with or without regard to classes: DICE and RandomFlip."""

from collections.abc import Callable
from typing import ClassVar

from jaxtyping import Bool
from torch import Generator, Tensor, cat

from robust_diffusion.attacks.base import FeaturesAndEdges, Need, Task, Victim
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.modification.base import (
    ModificationAttack,
    TargetPairs,
    edges_at,
    flip,
    shuffled,
)
from robust_diffusion.checks import Share, validated


class _RandomFlips(ModificationAttack):
    """Random removals and additions at the targets; additions spend what removals cannot."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    changes_features: ClassVar[bool] = False

    def flip_at_random(
        self,
        task: Task,
        budget: Budget,
        generator: Generator,
        num_removed: Callable[[int], int],
        may_add: Callable[[Tensor], Bool[Tensor, " p"]] | None = None,
    ) -> FeaturesAndEdges:
        """Remove `num_removed(flips)` edges and add the rest; edges that `may_add` accepts stay."""
        x, edge_index, n = task.x, task.edge_index, task.x.size(0)
        there = edges_at(task.targets, edge_index, n)
        flips = budget.max_flipped_edges(there.size(1))
        removable = there if may_add is None else there[:, ~may_add(there)]
        removed = shuffled(removable, generator)[:, : num_removed(flips)]
        added = TargetPairs(task.targets, n).draw_absent(
            flips - removed.size(1), edge_index, generator, may_add
        )
        return x, flip(edge_index, cat([removed, added], 1), n)


@validated("attacks.{self.name}")
class RandomFlip(_RandomFlips):
    """Random flips: edges at the targets removed and added at random.

    Removed edges are drawn uniformly among those that touch a target, and added edges uniformly
    among the absent pairs with at least one target. The features stay as they are. The model is
    never evaluated, so this is the control for every modification attack.

    Reference: of this project.

    Args:
        add_ratio: Share of the flips that add an edge, in 0..1. It is set explicitly because flips
            drawn uniformly among all pairs would almost never remove an edge.

    Examples:
        >>> from robust_diffusion.attacks import RandomFlip
        >>> RandomFlip().kind
        'modification'
    """

    name = "random_flip"

    def __init__(self, *, add_ratio: Share = 0.5) -> None:
        self.add_ratio = add_ratio

    def modify(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Draw the edges to remove, then those to add."""
        return self.flip_at_random(
            task, budget, generator, lambda flips: flips - round(flips * self.add_ratio)
        )


@validated("attacks.{self.name}")
class DICE(_RandomFlips):
    """DICE: delete edges inside a class, connect nodes of different classes.

    Deleted edges are drawn uniformly among those that touch a target and join two nodes of the same
    class, and added edges uniformly among the pairs of different classes with at least one target.
    Additions spend what deletions cannot. The features stay as they are.

    Reference: Waniek et al. 2018, arXiv:1608.00375; GRB's form, arXiv:2111.04314.

    Args:
        delete_ratio: Share of the flips that delete, in 0..1.

    Deviation: GRB only considers connecting the i-th target with node i, and leaves the flips
    unspent that it cannot use for deletions.

    Examples:
        >>> from robust_diffusion.attacks import DICE
        >>> DICE().kind
        'modification'
    """

    name = "dice"
    needs: ClassVar[frozenset[Need]] = frozenset({"predictions"})

    def __init__(self, *, delete_ratio: Share = 0.6) -> None:
        self.delete_ratio = delete_ratio

    def modify(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Delete inside, then connect outside."""
        labels = task.all_labels
        return self.flip_at_random(
            task,
            budget,
            generator,
            lambda flips: int(flips * self.delete_ratio),
            lambda pairs: labels[pairs[0]] != labels[pairs[1]],
        )
