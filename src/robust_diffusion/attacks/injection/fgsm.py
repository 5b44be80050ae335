"""FGSM, as an injection attack."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.injection.base import connect, draw_targets
from robust_diffusion.attacks.injection.features import SignAttack
from robust_diffusion.attacks.problem import Problem


class FGSM(SignAttack):
    """Fast gradient sign method on injected features: x <- clamp(x + step_size sign(grad loss)).

    Each new node gets edges to uniformly drawn, distinct target nodes. The features start at 0, as
    far as the limits allow, and take sign steps up the cross-entropy of the target nodes. One
    step is Goodfellow et al.'s method; GRB's takes many and differs from its PGD in the start.

    Reference: Goodfellow et al. 2015, arXiv:1412.6572; GRB's injection form, arXiv:2111.04314.

    Args:
        step_size: Change of each feature in one step, positive, in normalised units.
        num_steps: Gradient steps on the features, at least 0.
        homophily: Weight of the similarity of injected nodes and their neighbours, at least 0.
    """

    name = "fgsm"

    def inject(
        self, problem: Problem, budget: Budget, generator: torch.Generator
    ) -> tuple[Float[Tensor, "m f"], Int[Tensor, "2 e"]]:
        """Draw the edges, then fit the features."""
        x = problem.x
        rows = draw_targets(problem.targets, budget.injected_degrees, generator)
        edges = connect(problem.edge_index, rows, x.size(0))
        start = self.start(len(rows), x, budget.limits, generator)
        return torch.cat([x, self.ascend(problem, start, x, edges, budget.limits)]), edges

    def start(
        self, num_new: int, x: Tensor, limits: tuple[float, float], generator: torch.Generator
    ) -> Float[Tensor, "k f"]:
        """Features to start from, before they are clamped."""
        return x.new_zeros(num_new, x.size(1))
