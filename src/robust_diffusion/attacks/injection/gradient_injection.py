"""Injection by gradient steps, put together from parts."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.attacks.base import Need
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.climb import climb
from robust_diffusion.attacks.injection.base import InjectionAttack, connect
from robust_diffusion.attacks.injection.edges import Candidates
from robust_diffusion.attacks.injection.metagia import exchange
from robust_diffusion.attacks.injection.recipe import Recipe
from robust_diffusion.attacks.injection.sharing import BATCHES, SHARINGS, SharingName
from robust_diffusion.attacks.injection.starts import STARTS, StartName
from robust_diffusion.attacks.losses import LossName
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.attacks.steps import RuleName
from robust_diffusion.checks import Positive, SomeSteps, Steps

ROUNDS = 4
"""Fits of the features between which `edges=gradient` exchanges edges."""


class GradientInjection(InjectionAttack):
    """Gradient steps on injected features; loss, start, steps and edges are choices.

    Of all steps and restarts, the features are kept at which the model classifies the fewest
    targets right.

    Reference: of this project; the choices are those of the attacks that they are named after.

    Args:
        loss: Raised by the steps: cross_entropy, masked, logit, margin, tanh_margin, prob_margin
            or own_logit; see `attacks.losses`.
        start: Features to start from: zero, uniform, small_normal, real (of nodes of the graph)
            or runner_up (of nodes of the targets' second best class).
        edges: `drawn` as by SPEIT; `equal` shares of random targets; targets of one class
            together (`classes`); by `tdgia`'s defect score; `sequential`, each batch at the
            targets nearest to being lost; or `equal` shares exchanged by the `gradient` of their
            weights, as by MetaGIA.
        rule: Of a step: adam, sign, or halving_sign.
        step_size: Adam's learning rate, or the change of each feature in one step, positive, in
            normalised units.
        num_steps: Gradient steps on the features of each batch, at least 0.
        restarts: Times that all is done with other random numbers, at least 1.

    Raises:
        ConfigError: An unknown choice or a number out of range.

    Examples:
        >>> from robust_diffusion import GCN, Budget, GradientInjection, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> ascent = GradientInjection(num_steps=2, loss="tanh_margin")
        >>> graph = attack(GCN(8, 8, 7), data, Budget(2, 3), ascent)
        >>> graph.to_data().num_nodes
        102
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
        self.recipe = Recipe(edges=edges, start=start, loss=loss, rule=rule, step_size=step_size)

    def inject(
        self, problem: Problem, budget: Budget, generator: torch.Generator
    ) -> tuple[Float[Tensor, "m f"], Int[Tensor, "2 e"]]:
        """The most harmful of all restarts."""
        made = [self._once(problem, budget, generator) for _ in range(self.restarts)]
        return min(made, key=lambda graph: problem.right(*graph))

    def _once(
        self, problem: Problem, budget: Budget, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        x, edge_index, limits = problem.x, problem.edge_index, budget.limits
        batches = BATCHES.get(self.recipe.edges, 1)
        degrees = budget.injected_degrees
        size = -(-len(degrees) // batches)
        for first in range(0, len(degrees), size):
            batch = degrees[first : first + size]
            rows = SHARINGS[self.recipe.edges](problem, (x, edge_index), batch, generator)
            start = STARTS[self.recipe.start](problem, rows, limits, generator)
            if self.recipe.edges == "gradient":
                new, edge_index = self._exchanged(problem, rows, start, limits)
            else:
                edge_index = connect(edge_index, rows, x.size(0))
                old = problem.fixed_rows if x is problem.x else problem.rows_of(x)
                recipe, steps = self.recipe, self.num_steps
                new = climb(
                    problem, old.followed_by, edge_index, start, recipe, limits, steps
                ).features
            x = torch.cat([x, new])
        return x, edge_index

    def _exchanged(
        self, problem: Problem, rows: Sequence[Tensor], new: Tensor, limits: tuple[float, float]
    ) -> tuple[Tensor, Tensor]:
        """Fit the features, exchange edges by their gradient, and again."""
        problem.check_edge_weights()
        x, edge_index = problem.x, problem.edge_index
        for i in range(ROUNDS):
            edges = connect(edge_index, rows, x.size(0))
            steps = self.num_steps // ROUNDS + (i < self.num_steps % ROUNDS)
            old = problem.fixed_rows
            new = climb(problem, old.followed_by, edges, new, self.recipe, limits, steps).features
            if i < ROUNDS - 1:
                rows = exchanged_rows(problem, rows, torch.cat([x, new]))
        return new, edges


def exchanged_rows(
    problem: Problem, rows: Sequence[Int[Tensor, "_"]], x: Float[Tensor, "m f"]
) -> list[Int[Tensor, "_"]]:
    """Targets of each new node, those of low gradient exchanged for others; see `MetaGIA`."""
    chosen = torch.stack([torch.isin(problem.targets, row) for row in rows])
    candidates = Candidates(problem, x, problem.edge_index, len(rows), loss_cap=4.0)
    return [problem.targets[row] for row in exchange(candidates, chosen, swap_ratio=0.5)]
