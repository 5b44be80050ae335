"""SPEIT."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.injection.base import connect, draw_targets
from robust_diffusion.attacks.injection.features import AdamAttack
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.attacks.rows import FixedRows


class SPEIT(AdamAttack):
    """SPEIT: inject nodes at random targets, then raise the model's loss by their features.

    Each new node gets edges to uniformly drawn, distinct target nodes. The features start at 0
    and ascend the cross-entropy against the model's own clean predictions, clamped to the
    feature limits after each step.

    Reference: Zheng et al., first place of KDD Cup 2020; GRB's "random" mode, arXiv:2111.04314;
    section "Attack Setup", arXiv:2209.07754.

    Args:
        learning_rate: Adam's, positive.
        num_steps: Gradient steps on the features, at least 0.
        homophily: Weight of the similarity of injected nodes and their neighbours, at least 0.
    """

    name = "speit"

    def inject(
        self, problem: Problem, budget: Budget, generator: torch.Generator
    ) -> tuple[Float[Tensor, "m f"], Int[Tensor, "2 e"]]:
        """Draw the edges, then fit the features."""
        x, (low, high) = problem.x, budget.limits
        rows = draw_targets(problem.targets, budget.injected_degrees, generator)
        edges = connect(problem.edge_index, rows, x.size(0))
        old, disguise = FixedRows(x), self.disguise(x, edges, len(rows))
        features = self.minimize(
            x.new_zeros(len(rows), x.size(1)).clamp(low, high),
            lambda new: -problem.loss(old.followed_by(new), edges) - disguise(new),
            lambda new: new.clamp(low, high),
        )
        return torch.cat([x, features]), edges
