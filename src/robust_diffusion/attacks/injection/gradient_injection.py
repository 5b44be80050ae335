"""Injection by gradient steps, composed of a loss, a start, edges and a step rule."""

from typing import ClassVar

import torch
from torch import Generator, Tensor

from robust_diffusion.attacks.base import FeaturesAndEdges, Need, Task, Victim
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.feature_set import feature_set
from robust_diffusion.attacks.gradient_ascent import RuleName, StepRule, climb
from robust_diffusion.attacks.injection.base import STARTS, InjectionAttack, StartName, connect
from robust_diffusion.attacks.injection.edge_allocation import BATCHES, SHARINGS, SharingName
from robust_diffusion.attacks.injection.edges import Candidates, exchange
from robust_diffusion.attacks.losses import LossName
from robust_diffusion.checks import Positive, SomeSteps, Steps, validated

ROUNDS = 4
"""Fits of the features between which `edges=gradient` exchanges edges."""


@validated("attacks.{self.name}")
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

    def inject(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Return the most harmful graph of all restarts."""

        def right(graph: FeaturesAndEdges) -> int:
            with torch.no_grad():
                return task.right(victim(*graph))

        made = [self._once(victim, task, budget, generator) for _ in range(self.restarts)]
        return min(made, key=right)

    def _once(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        x, edge_index, allowed = task.x, task.edge_index, feature_set(budget)
        degrees = budget.injected_degrees
        size = -(-len(degrees) // BATCHES.get(self.edges, 1))
        for first in range(0, len(degrees), size):
            batch = degrees[first : first + size]
            rows = SHARINGS[self.edges](victim, task, (x, edge_index), batch, generator)
            new = STARTS[self.start](victim, task, rows, budget, generator)
            with_rows = victim.with_rows if x is task.x else victim.appending(x)
            rounds = ROUNDS if self.edges == "gradient" else 1
            if rounds > 1:
                victim.check_edge_gradient()
            for i in range(rounds):
                edges = connect(edge_index, rows, x.size(0))
                steps = self.num_steps // rounds + (i < self.num_steps % rounds)
                new = climb(
                    victim, task, with_rows, edges, new, self.steps, allowed, steps
                ).features
                if i < rounds - 1:
                    rows = _exchanged(victim, task, rows, torch.cat([x, new]))
            x, edge_index = torch.cat([x, new]), edges
        return x, edge_index


def _exchanged(victim: Victim, task: Task, rows: list[Tensor], x: Tensor) -> list[Tensor]:
    """Exchange targets of low gradient for others, at each new node; see `MetaGIA`."""
    chosen = torch.stack([torch.isin(task.targets, row) for row in rows])
    candidates = Candidates(victim, task, x, task.edge_index, len(rows), loss_cap=4.0)
    return [task.targets[row] for row in exchange(candidates, chosen, swap_ratio=0.5)]
