"""PGD as a modification attack."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch_geometric.utils import degree

from robust_diffusion.attacks.base import FeaturesAndEdges, Need, Task, Victim, Waivable
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.gradient_ascent import Ascent, Sign
from robust_diffusion.attacks.modification.base import (
    ModificationAttack,
    edges_at,
    feature_range,
    flip,
    membership,
    shuffled,
)
from robust_diffusion.checks import Positive, Steps, validated

_Variant = Literal["ball", "step"]


@validated("attacks.{self.name}")
class PGDModification(ModificationAttack):
    """PGD: remove random edges of the targets, then raise the loss by some targets' features.

    The edges are drawn among those that touch a target. The last edge of a node is never removed,
    so fewer edges than the budget allows may be removed. The features of a random share of the
    targets then take sign steps up the cross-entropy of all targets. A feature stays within the
    feature limits; if its clean value lies outside them, it may not move further out.

    Reference: section "Modification Attacks", arXiv:2209.07754; GRB's PGD, arXiv:2111.04314.

    Args:
        step_size: Change of each feature in one step of `ball`, positive; see
            `Budget.scale_steps`.
        num_steps: Gradient steps on the features, at least 0.
        variant: `ball` keeps each feature within epsilon of the clean one, as the paper states.
            `step` is GRB's code, and `unbounded` declares its differences: epsilon is the length
            of each step, and only the feature limits bound the sum of all steps; nodes are drawn
            with replacement, so fewer change than the budget allows; an edge between two targets
            is listed twice, so it is removed and put back; and the edge ratio counts all edges of
            the graph.

    Examples:
        >>> from robust_diffusion.attacks import PGDModification
        >>> PGDModification(num_steps=2).kind
        'modification'
    """

    name = "pgd_modification"
    needs: ClassVar[frozenset[Need]] = frozenset({"predictions", "feature_gradient"})

    def __init__(
        self, *, step_size: Positive = 0.01, num_steps: Steps = 100, variant: _Variant = "ball"
    ) -> None:
        self.step_size = step_size
        self.num_steps = num_steps
        self.variant = variant

    @classmethod
    def unread(cls, options: Mapping[str, Any]) -> frozenset[str]:
        """Return what `Attack` does, and the step size if the steps are epsilon long."""
        if options.get("variant") == "step":
            return super().unread(options) | {"step_size"}
        return super().unread(options) - {"budget.scale_steps"}

    @property
    def unbounded(self) -> Mapping[Waivable, str]:
        """Limits that GRB's code interprets differently from the paper."""
        if self.variant == "ball":
            return {}
        return {"epsilon": "length of a step", "edge_ratio": "share of all edges"}

    def modify(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Remove the edges, then fit the features."""
        edge_index, n = task.edge_index, task.x.size(0)
        listed = edges_at(task.targets, edge_index, n)
        most = budget.max_flipped_edges(listed.size(1))
        if self.variant == "step":
            listed = edge_index[:, membership(task.targets, n)[edge_index[0]]]
            most = budget.max_flipped_edges(edge_index.size(1) // 2)
        removed = _removed_in_turn(
            shuffled(listed, generator), degree(edge_index[0], n, dtype=torch.long), most
        )
        edge_index = flip(edge_index, removed, n)
        t = task.targets.numel()
        most = budget.max_changed_nodes(t)
        if self.variant == "step":
            drawn = torch.unique(torch.randint(t, (most,), generator=generator))
        else:
            drawn = torch.randperm(t, generator=generator)[:most]
        nodes = task.targets[drawn.to(task.targets.device)]
        return self._fit_features(victim, task, edge_index, nodes, budget), edge_index

    def _fit_features(
        self,
        victim: Victim,
        task: Task,
        edge_index: Tensor,
        nodes: Int[Tensor, " c"],
        budget: Budget,
    ) -> Float[Tensor, "n f"]:
        clean = task.x[nodes]
        step, (low, high) = self.step_size * budget.unit, feature_range(clean, budget)
        if self.variant == "step":
            step = budget.epsilon
            low, high = clean.clamp(max=budget.limits[0]), clean.clamp(min=budget.limits[1])
        if not nodes.numel():
            return task.x

        def place(new: Tensor) -> Tensor:
            return task.x.index_copy(0, nodes, new)

        ascent = Ascent(
            clean,
            lambda new: task.loss(victim(place(new), edge_index)),
            lambda new: Sign(new, step),
            lambda new: new.clamp(low, high),
        )
        return place(ascent.advance(self.num_steps))


def _removed_in_turn(
    listed: Int[Tensor, "2 u"], degrees: Int[Tensor, " n"], most: int
) -> Int[Tensor, "2 r"]:
    """Flip edges one by one, at most `most` and isolating no node; return the removed edges."""
    left, flips = degrees.tolist(), 0
    gone: dict[tuple[int, int], None] = {}
    # One by one, since whether an edge can be removed depends on earlier removals.
    for u, v in listed.T.tolist():
        if flips == most:
            break
        pair = (min(u, v), max(u, v))
        if pair in gone:
            del gone[pair]
            change = 1
        elif left[u] > 1 and left[v] > 1:
            gone[pair] = None
            change = -1
        else:
            continue
        left[u], left[v], flips = left[u] + change, left[v] + change, flips + 1
    return listed.new_tensor(list(gone)).view(-1, 2).T
