"""PGD, as a modification attack."""

from collections.abc import Mapping
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.utils import degree

from robust_diffusion.attacks.base import Need, Waivable
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.modification.base import (
    ModificationAttack,
    edges_at,
    flip,
    shuffled,
)
from robust_diffusion.attacks.problem import Problem, check_finite, gradient
from robust_diffusion.checks import check_choice, check_number, check_whole

Variant = Literal["ball", "step"]


class PGDModification(ModificationAttack):
    """PGD: remove random edges of the targets, then raise the loss by some targets' features.

    The edges are drawn among those that touch a target; none is removed that is the last of one
    of its ends, so fewer than the budget allows may go. The features of a random share of the
    targets then take sign steps up the cross-entropy of all targets. A feature ends within the
    feature limits, or, if it lies outside them, no further out.

    Reference: section "Modification Attacks", arXiv:2209.07754; GRB's PGD, arXiv:2111.04314.

    Args:
        step_size: Change of each feature in one step of `ball`, positive, in normalised units.
        num_steps: Gradient steps on the features, at least 0.
        variant: `ball` keeps each feature within epsilon of the clean one, as the paper reads.
            `step` is GRB's code: epsilon is the length of each step, and nothing but the feature
            limits bounds the sum of all steps; `unbounded` says so.

    Raises:
        ConfigError: A number out of range or an unknown variant.

    Deviation: GRB lists an edge between two targets twice, so that it may remove it and put it
    back; it draws the nodes with replacement, and takes the edge ratio of all edges of the graph.
    """

    name = "pgd_modification"
    needs: ClassVar[frozenset[Need]] = frozenset({"predictions", "feature_gradient"})

    def __init__(
        self, *, step_size: float = 0.01, num_steps: int = 100, variant: Variant = "ball"
    ) -> None:
        key = f"attacks.{self.name}"
        self.step_size = check_number(f"{key}.step_size", step_size, above=0)
        self.num_steps = check_whole(f"{key}.num_steps", num_steps, at_least=0)
        check_choice(f"{key}.variant", variant, get_args(Variant))
        self.variant = variant

    @property
    def unbounded(self) -> Mapping[Waivable, str]:
        """Epsilon, in the reading that takes it for the length of a step."""
        return {"epsilon": "step reading"} if self.variant == "step" else {}

    def modify(
        self, problem: Problem, budget: Budget, generator: torch.Generator
    ) -> tuple[Float[Tensor, "n f"], Int[Tensor, "2 e"]]:
        """Remove the edges, then fit the features."""
        edge_index, n = problem.edge_index, problem.x.size(0)
        there = edges_at(problem.targets, edge_index, n)
        removed = _removable(
            shuffled(there, generator),
            degree(edge_index[0], n, dtype=torch.long),
            budget.max_flipped_edges(there.size(1)),
        )
        edge_index = flip(edge_index, removed, n)
        t = problem.targets.numel()
        drawn = torch.randperm(t, generator=generator)[: budget.max_changed_nodes(t)]
        nodes = problem.targets[drawn.to(problem.targets.device)]
        return self._fit_features(problem, edge_index, nodes, budget), edge_index

    def _fit_features(
        self, problem: Problem, edge_index: Tensor, nodes: Int[Tensor, " c"], budget: Budget
    ) -> Float[Tensor, "n f"]:
        clean = problem.x[nodes]
        low, high = (clean.clamp(max=budget.limits[0]), clean.clamp(min=budget.limits[1]))
        step = self.step_size if self.variant == "ball" else budget.epsilon
        if self.variant == "ball":
            low, high = low.maximum(clean - budget.epsilon), high.minimum(clean + budget.epsilon)
        new = clean
        # The sign of a NaN is 0, so each step is looked at; together, to wait for a GPU only once.
        finite = torch.ones((), dtype=torch.bool, device=clean.device)
        for _ in range(self.num_steps if nodes.numel() else 0):
            new = new.detach().requires_grad_()
            loss = problem.loss(problem.x.index_copy(0, nodes, new), edge_index)
            slope = gradient(loss, new, attack=self.name, of="features")
            finite &= slope.isfinite().all()
            new = (new.detach() + step * slope.sign()).clamp(low, high)
        check_finite(finite, attack=self.name, of="features")
        return problem.x.index_copy(0, nodes, new)


def _removable(
    candidates: Int[Tensor, "2 u"], degrees: Int[Tensor, " n"], most: int
) -> Int[Tensor, "2 r"]:
    """The first of the candidates that can go one after the other without isolating a node."""
    left = degrees.tolist()
    removed: list[int] = []
    # One by one: whether an edge can go depends on those that went before.
    for position, (u, v) in enumerate(candidates.T.tolist()):
        if len(removed) == most:
            break
        if left[u] > 1 and left[v] > 1:
            left[u] -= 1
            left[v] -= 1
            removed.append(position)
    return candidates[:, removed]
