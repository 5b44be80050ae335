"""Random injection."""

from typing import ClassVar

import torch
from torch import Generator

from robust_diffusion.attacks.base import Graph, Need
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.injection.base import InjectionAttack, connect, draw_targets
from robust_diffusion.attacks.problem import Problem


class RandomInjection(InjectionAttack):
    """Random injection: random edges, random features; the control beside every injection attack.

    Each new node gets edges to uniformly drawn, distinct target nodes. Its features are normal of
    mean 0, their standard deviation the largest magnitude that the limits allow, clamped to the
    limits: about a third of them end at a limit. The model is not looked at.

    Reference: RAND of GRB, arXiv:2111.04314.

    Deviation: GRB's standard deviation is the upper limit, which is the same where the limits are
    symmetric, and none at all where no feature may be positive.

    Examples:
        >>> from robust_diffusion import GCN, Budget, RandomInjection, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(2, 3), RandomInjection())
        >>> graph.to_data().num_nodes
        102
    """

    name = "random"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def inject(self, problem: Problem, budget: Budget, generator: Generator) -> Graph:
        """Draw the edges, then the features."""
        x, (low, high) = problem.x, budget.limits
        rows = draw_targets(problem.targets, budget.injected_degrees, generator)
        drawn = torch.randn(len(rows), x.size(1), generator=generator, dtype=torch.float32).to(x)
        features = (drawn * max(-low, high)).clamp(low, high)
        return torch.cat([x, features]), connect(problem.edge_index, rows, x.size(0))
