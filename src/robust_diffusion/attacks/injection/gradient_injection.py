"""Injection by gradient steps, composed of a loss, a start, edges and a step rule."""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from robust_diffusion.attacks.base import FeaturesAndEdges, Task, Victim
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.feature_set import FeatureSet
from robust_diffusion.attacks.gradient_ascent import RuleName, StepRule, climb
from robust_diffusion.attacks.injection.base import StartName
from robust_diffusion.attacks.injection.edge_allocation import BATCHES, SharingName
from robust_diffusion.attacks.injection.features import FeatureAscent
from robust_diffusion.attacks.losses import LossName
from robust_diffusion.checks import Positive, SomeSteps, Steps, validated

ROUNDS = 4
"""Fits of the features between which `edges=gradient` exchanges edges."""


@validated("attacks.{self.name}")
class GradientInjection(FeatureAscent):
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
    loss_cap = 4.0  # for the exchange of edges, as in MetaGIA

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
        super().__init__(StepRule(loss=loss, rule=rule, step_size=step_size), num_steps=num_steps)
        self.restarts = restarts
        self.edges, self.start = edges, start
        if edges == "gradient":
            self.needs = self.needs | {"edge_gradient"}  # type: ignore[misc]
            most = range(num_steps + ROUNDS - 1, num_steps - 1, -1)
            self.steps_per_fit = tuple(steps // ROUNDS for steps in most)

    def expected_passes(self, budget: Budget, task: Task, victim: Victim) -> int | None:
        """See `FeatureAscent`; fewer if every target is misclassified before the end."""
        return self.restarts * (super().expected_passes(budget, task, victim) or 0) or None

    def batch_size(self, budget: Budget, num_targets: int) -> int:
        """See `FeatureAscent`; here the sharing decides the number of batches."""
        return max(1, -(-budget.max_injected_nodes // BATCHES.get(self.edges, 1)))

    def inject(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Return the most harmful graph of all restarts."""

        def right(graph: FeaturesAndEdges) -> int:
            with torch.no_grad():
                return task.right(victim(*graph))

        runs = [
            super(GradientInjection, self).inject(victim, task, budget, generator)
            for _ in range(self.restarts)
        ]
        return min(runs, key=right)

    def fit(
        self,
        victim: Victim,
        task: Task,
        start: Float[Tensor, "k f"],
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        allowed: FeatureSet,
        num_steps: int,
    ) -> Float[Tensor, "k f"]:
        """Return the most harmful features of all steps."""
        rows = victim.with_rows if x is task.x else victim.appending(x)
        return climb(victim, task, rows, edge_index, start, self.steps, allowed, num_steps).features
