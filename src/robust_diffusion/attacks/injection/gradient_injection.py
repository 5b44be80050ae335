"""Injection by gradient steps, composed of a loss, a start, edges and a step rule."""

from typing import ClassVar

import torch
from torch import Generator, Tensor

from robust_diffusion.attacks.base import FeaturesAndEdges, Need, Problem
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.feature_set import feature_set
from robust_diffusion.attacks.gradient_ascent import RuleName, StepRule, climb
from robust_diffusion.attacks.injection.base import STARTS, InjectionAttack, StartName, connect
from robust_diffusion.attacks.injection.edge_allocation import BATCHES, SHARINGS, SharingName
from robust_diffusion.attacks.injection.edges import Candidates, exchange
from robust_diffusion.attacks.losses import LossName
from robust_diffusion.checks import Positive, SomeSteps, Steps

ROUNDS = 4
"""Fits of the features between which `edges=gradient` exchanges edges."""


class GradientInjection(InjectionAttack):
    """Gradient steps on injected features, with configurable loss, start, steps and edges.

    The result has the features at which the model classifies the fewest targets correctly, over all
    steps of a batch and all restarts. With `edges=gradient`, only the steps after the last exchange
    count.

    Reference: of this project; the options are those of the attacks that they are named after.

    Args:
        loss: Loss that the steps raise: cross_entropy, masked, logit, margin, tanh_margin,
            prob_margin or own_logit; see `attacks.losses`.
        start: Features to start from: zero, uniform, small_normal, real (copied from nodes of the
            graph) or runner_up (copied from nodes of the targets' second best class).
        edges: `drawn` uniformly, as in SPEIT; `equal` numbers at random targets; grouped by class
            (`classes`); by the defect score of `tdgia`; `sequential`, each batch at the targets
            nearest to the decision boundary; or `equal` numbers exchanged by the `gradient` with
            respect to their weights, as in MetaGIA.
        rule: Step rule: adam, sign, or halving_sign.
        step_size: Adam's learning rate, or the change of each feature in one step, positive; see
            `Budget.scale_steps`.
        num_steps: Gradient steps on the features of each batch, at least 0.
        restarts: Number of runs with different random numbers, at least 1; the best one counts.

    Examples:
        >>> from robust_diffusion.attacks import GradientInjection
        >>> GradientInjection(num_steps=2).kind
        'injection'
    """

    name = "gradient_injection"
    needs: ClassVar[frozenset[Need]] = frozenset({"predictions", "feature_gradient"})

    def __init__(
        self,
        *,
        loss: LossName = "logit",
        start: StartName = "real",
        edges: SharingName = "classes",
        rule: RuleName = "adam",
        step_size: Positive = 0.1,
        num_steps: Steps = 120,
        restarts: SomeSteps = 1,
    ) -> None:
        self.num_steps = num_steps
        self.restarts = restarts
        self.edges, self.start = edges, start
        if edges == "gradient":
            self.needs = self.needs | {"edge_gradient"}  # type: ignore[misc]
        self.steps = StepRule(loss=loss, rule=rule, step_size=step_size)

    def expected_passes(self, budget: Budget, num_targets: int) -> int | None:
        """See `Attack`; fewer if every target is misclassified before the end."""
        batches = min(BATCHES.get(self.edges, 1), budget.max_injected_nodes)
        return self.restarts * batches * self.num_steps or None

    def inject(self, problem: Problem, budget: Budget, generator: Generator) -> FeaturesAndEdges:
        """Return the most harmful graph of all restarts."""
        made = [self._once(problem, budget, generator) for _ in range(self.restarts)]
        return min(made, key=lambda graph: problem.right(*graph))

    def _once(self, problem: Problem, budget: Budget, generator: Generator) -> FeaturesAndEdges:
        x, edge_index, allowed = problem.x, problem.edge_index, feature_set(budget)
        degrees = budget.injected_degrees
        size = -(-len(degrees) // BATCHES.get(self.edges, 1))
        for first in range(0, len(degrees), size):
            batch = degrees[first : first + size]
            rows = SHARINGS[self.edges](problem, (x, edge_index), batch, generator)
            new = STARTS[self.start](problem, rows, budget, generator)
            with_rows = problem.with_rows if x is problem.x else problem.appending(x)
            rounds = ROUNDS if self.edges == "gradient" else 1
            if rounds > 1:
                problem.check_edge_weights()
            for i in range(rounds):
                edges = connect(edge_index, rows, x.size(0))
                steps = self.num_steps // rounds + (i < self.num_steps % rounds)
                new = climb(problem, with_rows, edges, new, self.steps, allowed, steps).features
                if i < rounds - 1:
                    rows = _exchanged(problem, rows, torch.cat([x, new]))
            x, edge_index = torch.cat([x, new]), edges
        return x, edge_index


def _exchanged(problem: Problem, rows: list[Tensor], x: Tensor) -> list[Tensor]:
    """Exchange targets of low gradient for others, at each new node; see `MetaGIA`."""
    chosen = torch.stack([torch.isin(problem.targets, row) for row in rows])
    candidates = Candidates(problem, x, problem.edge_index, len(rows), loss_cap=4.0)
    return [problem.targets[row] for row in exchange(candidates, chosen, swap_ratio=0.5)]
