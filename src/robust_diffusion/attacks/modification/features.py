"""Features of some targets, moved within epsilon of the clean ones."""

from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.gradient_ascent import Steps, climb
from robust_diffusion.attacks.losses import LOSSES, LossName, margins
from robust_diffusion.attacks.modification.base import feature_range
from robust_diffusion.attacks.problem import Problem, check_finite, gradient
from robust_diffusion.system.artifact import Artifact

Choice = Literal["gradient", "margin"]


def moved_features(
    problem: Problem,
    edge_index: Int[Tensor, "2 e"],
    budget: Budget,
    by: tuple[Choice, LossName],
    num_steps: int,
    start: Artifact | None = None,
) -> Artifact:
    """Sign steps up the loss, of halving length; the best step is kept by true accuracy.

    Args:
        problem: The form of the model that is differentiated, and the targets.
        edge_index: Edges, which stay.
        budget: Says how many nodes may change, and how much.
        by: Targets whose features change, of the largest first-order gain (`gradient`) or right
            and nearest to being lost (`margin`); and the loss, see `losses`.
        num_steps: At least 0.
        start: What earlier steps by the same found.

    Raises:
        AttackError: There is no gradient, or it is not finite.
    """
    nodes = start.tensors["nodes"] if start else chosen_nodes(problem, edge_index, budget, *by)
    clean = problem.x[nodes]
    return climb(
        problem,
        lambda new: problem.x.index_copy(0, nodes, new),
        edge_index,
        start.tensors["features"] if start else clean,
        Steps(loss=by[1], rule="halving_sign", step_size=budget.epsilon / 2),
        feature_range(clean, budget),
        num_steps,
    ).packed(nodes=nodes, edge_index=edge_index)


def chosen_nodes(
    problem: Problem,
    edge_index: Int[Tensor, "2 e"],
    budget: Budget,
    choice: Choice,
    loss: LossName,
) -> Int[Tensor, " c"]:
    """The targets whose features are worth changing, as many as the budget allows.

    Raises:
        AttackError: There is no gradient, or it is not finite.
    """
    x, targets = problem.x, problem.targets
    if choice == "margin":
        with torch.no_grad():
            margin = margins(problem.logits(x, edge_index), problem.labels)
        worth = margin.masked_fill(margin > 0, -torch.inf)
    else:
        variable = x.detach().requires_grad_()
        value = LOSSES[loss](problem.logits(variable, edge_index), problem.labels).mean()
        slope = gradient(value, variable, attack=problem.attack, of="features")[targets]
        check_finite(slope.isfinite().all(), attack=problem.attack, of="features")
        low, high = feature_range(x[targets], budget)
        worth = torch.maximum(slope * (low - x[targets]), slope * (high - x[targets])).sum(1)
    best = worth.argsort(descending=True, stable=True)
    return targets[best[: budget.max_changed_nodes(targets.numel())]]
