"""Injection attacks that also choose the edges by the model's gradient."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from robust_diffusion.attacks.base import Need
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.injection.base import connect, draw_targets
from robust_diffusion.attacks.injection.features import SignAttack
from robust_diffusion.attacks.injection.starts import small_normal
from robust_diffusion.attacks.problem import Problem, gradient
from robust_diffusion.checks import NonNegative, Positive, PositiveShare, Steps

MAX_CANDIDATES = 2**20
"""Most candidate edges that are weighed at a time."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Every edge from some new nodes to the targets, over the graph as it stands.

    Args:
        problem: Whose targets and loss.
        x: Features of all nodes, the new ones last.
        edge_index: Edges without those of the new nodes.
        num_new: Number of new nodes k.
        loss_cap: Cross-entropy from which a target counts as lost.
    """

    problem: Problem
    x: Float[Tensor, "m f"]
    edge_index: Int[Tensor, "2 e"]
    num_new: int
    loss_cap: float | None

    @cached_property
    def all_edges(self) -> Int[Tensor, "2 e2"]:
        """The graph's edges, then every candidate in both directions."""
        rows = [self.problem.targets] * self.num_new
        return connect(self.edge_index, rows, self.x.size(0) - self.num_new)

    def loss(self, weight: Float[Tensor, "k t"]) -> Float[Tensor, ""]:
        """Loss of the target nodes if each candidate has this weight; 0 is no edge."""
        weights = weight.flatten()
        ones = weights.new_ones(self.edge_index.size(1))
        return self.problem.loss(
            self.x, self.all_edges, torch.cat([ones, weights, weights]), cap=self.loss_cap
        )

    def slope(self, weight: Float[Tensor, "k t"]) -> Float[Tensor, "k t"]:
        """Gradient of the loss with respect to the weights."""
        weight = weight.detach().requires_grad_()
        return gradient(self.loss(weight), weight, attack=self.problem.attack, of="edge weights")


class EdgeAttack(SignAttack):
    """An injection attack that alternates between features and edges, batch by batch.

    A batch of new nodes starts with random edges and small random features. Then, in each round,
    `choose` looks for better edges with the features fixed, and sign steps fit the features to
    the edges. Earlier batches stay as they are.

    Args:
        step_size: Change of each feature in one step, positive, in normalised units.
        num_steps: Gradient steps on the features per fit, at least 0.
        num_rounds: Times that a batch's edges are chosen anew, at least 0.
        batch_ratio: Share of the injected nodes that goes in at a time, in (0, 1]. A batch is
            smaller where it would have more than 2^20 candidate edges.
        loss_cap: Cross-entropy from which a target counts as lost, above 0; `None` if never.
            Without it, edges gather where the loss is largest, at targets that are lost already.
        homophily: Weight of the similarity of injected nodes and their neighbours, at least 0.

    Raises:
        ConfigError: A number out of range.
    """

    needs: ClassVar[frozenset[Need]] = frozenset(
        {"predictions", "feature_gradient", "edge_gradient"}
    )

    def __init__(
        self,
        *,
        step_size: Positive = 0.01,
        num_steps: Steps = 100,
        num_rounds: Steps = 1,
        batch_ratio: PositiveShare = 1.0,
        loss_cap: Positive | None = 4.0,
        homophily: NonNegative = 0.0,
    ) -> None:
        super().__init__(step_size=step_size, num_steps=num_steps, homophily=homophily)
        self.loss_cap = loss_cap
        self.num_rounds = num_rounds
        self.batch_ratio = batch_ratio

    def inject(
        self, problem: Problem, budget: Budget, generator: torch.Generator
    ) -> tuple[Float[Tensor, "m f"], Int[Tensor, "2 e"]]:
        """Inject the nodes batch by batch."""
        problem.check_edge_weights()
        x, edge_index = problem.x, problem.edge_index
        for degrees in self._batches(budget.injected_degrees, problem.targets.numel()):
            chosen = _random_choice(problem.targets.numel(), degrees, generator)
            chosen = chosen.to(x.device)
            rows = [problem.targets[row] for row in chosen]
            start = small_normal(problem, rows, budget.limits, generator)
            edges = connect(edge_index, rows, x.size(0))
            new = self.fit(problem, start, x, edges, budget.limits)
            for _ in range(self.num_rounds):
                candidates = Candidates(
                    problem, torch.cat([x, new]), edge_index, len(degrees), self.loss_cap
                )
                chosen = self.choose(candidates, chosen)
                edges = self._connect(problem, x, edge_index, chosen)
                new = self.fit(problem, new, x, edges, budget.limits)
            x, edge_index = torch.cat([x, new]), edges
        return x, edge_index

    @abstractmethod
    def choose(self, candidates: Candidates, chosen: Bool[Tensor, "k t"]) -> Bool[Tensor, "k t"]:
        """Better edges, as many for each new node as it has."""

    def _batches(self, degrees: Sequence[int], num_targets: int) -> Iterator[Sequence[int]]:
        batch = max(1, int(len(degrees) * self.batch_ratio))
        batch = min(batch, max(1, MAX_CANDIDATES // num_targets))
        for start in range(0, len(degrees), batch):
            yield degrees[start : start + batch]

    @staticmethod
    def _connect(problem: Problem, x: Tensor, edge_index: Tensor, chosen: Tensor) -> Tensor:
        return connect(edge_index, [problem.targets[row] for row in chosen], x.size(0))


def _random_choice(
    num_targets: int, degrees: Sequence[int], generator: torch.Generator
) -> Bool[Tensor, "k t"]:
    chosen = torch.zeros(len(degrees), num_targets, dtype=torch.bool)
    for row, drawn in zip(
        chosen, draw_targets(torch.arange(num_targets), degrees, generator), strict=True
    ):
        row[drawn] = True
    return chosen
