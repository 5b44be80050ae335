"""Injection attacks that also select the edges by the model's gradient: MetaGIA and AGIA."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Generator, Tensor

from robust_diffusion.attacks.base import FeaturesAndEdges, Need, Task, Victim
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.gradient_ascent import Adam, Ascent, StepRule
from robust_diffusion.attacks.injection.base import StartName
from robust_diffusion.attacks.injection.candidate_edges import (
    MAX_CANDIDATES,
    Candidates,
    project,
)
from robust_diffusion.attacks.injection.features import FeatureAscent
from robust_diffusion.checks import NonNegative, Positive, PositiveShare, Steps, validated


@validated("attacks.{self.name}")
class MetaGIA(FeatureAscent):
    """MetaGIA: exchange injected edges by the gradient of the loss with respect to them.

    A batch of new nodes starts with random edges and small random features. In each round, edges
    are exchanged with the features fixed, and then sign steps fit the features to the edges.
    Batches are smaller than `batch_ratio` if one would have more than 2^20 candidate edges.

    Let G be the gradient of the loss with respect to the weights of all edges from the batch to the
    targets. Each round exchanges present edges of low G for absent edges of high G at the same
    node, starting with the highest gain in G. If the loss does not rise, half as many exchanges are
    tried, and so on.

    Reference: MetaGIA, appendix of Chen et al. 2022, arXiv:2202.08057.

    Args:
        num_rounds: Times that a batch's edges are reselected, at least 0.
        swap_ratio: Largest share of a batch's edges that one round exchanges, in (0, 1].
        step_size: Change of each feature in one step, positive; see `Budget.scale_steps`.
        num_steps: Gradient steps on the features per fit, at least 0.
        batch_ratio: Share of the injected nodes in one batch, in (0, 1].
        loss_cap: Cap on the cross-entropy of a target, above 0; `None` for no cap. A cap keeps
            edges from gathering at targets that are already misclassified.
        homophily: Weight of the similarity of injected nodes and their neighbours, at least 0.

    Deviation: The authors' code flips edges one by one and evens out the total afterwards, so a
    node may end with more edges than allowed. Exchanges preserve the number of edges of every node.
    The authors' code also restarts the features in each round, does not check the loss before it
    flips, and does not cap it.

    Examples:
        >>> from robust_diffusion.attacks import MetaGIA
        >>> MetaGIA(num_steps=2).kind
        'injection'
    """

    name = "metagia"
    needs: ClassVar[frozenset[Need]] = FeatureAscent.needs | {"edge_gradient"}
    start: StartName = "small_normal"

    def __init__(
        self,
        *,
        num_rounds: Steps = 8,
        swap_ratio: PositiveShare = 0.5,
        step_size: Positive = 0.01,
        num_steps: Steps = 100,
        batch_ratio: PositiveShare = 1.0,
        loss_cap: Positive | None = 4.0,
        homophily: NonNegative = 0.0,
    ) -> None:
        steps = StepRule(loss="cross_entropy", rule="sign", step_size=step_size)
        super().__init__(steps, num_steps=num_steps, homophily=homophily, num_rounds=num_rounds)
        self.swap_ratio = swap_ratio
        self.batch_ratio = batch_ratio
        self.loss_cap = loss_cap

    def batch_size(self, budget: Budget, num_targets: int) -> int:
        """See `FeatureAscent`; a batch has at most 2^20 candidate edges."""
        return max(1, min(super().batch_size(budget, num_targets), MAX_CANDIDATES // num_targets))

    def place(
        self,
        victim: Victim,
        task: Task,
        graph: FeaturesAndEdges,
        degrees: list[int],
        budget: Budget,
        generator: Generator,
    ) -> list[Int[Tensor, "_"]]:
        """Draw targets uniformly for each node, in the order in which rounds list them."""
        rows = super().place(victim, task, graph, degrees, budget, generator)
        return [task.targets[torch.isin(task.targets, row)] for row in rows]


@validated("attacks.{self.name}")
class AGIA(MetaGIA):
    """Adaptive injection: fit the weights of all candidate edges by Adam, then use the heaviest.

    In each round, the weights of all edges from the batch to the targets start at 1 for present
    edges and 0 for absent ones, and ascend the loss. After each step they are projected onto
    weights in [0, 1] whose sum at each node is at most its number of edges. The heaviest become
    edges.

    Reference: AGIA, appendix of Chen et al. 2022, arXiv:2202.08057.

    Args:
        learning_rate: Adam's learning rate for the edge weights, positive.
        num_edge_steps: Gradient steps on the edge weights per round, at least 0. For all other
            arguments see `MetaGIA`, except `swap_ratio`.

    Deviation: Instead of a projection, the authors' code lets the weights leave [0, 1] and adds an
    L1 penalty to the loss. It restarts the features after each round, and does not cap the loss.

    Examples:
        >>> from robust_diffusion.attacks import AGIA
        >>> AGIA(num_steps=2).kind
        'injection'
    """

    name = "agia"

    def __init__(
        self,
        *,
        num_rounds: Steps = 2,
        learning_rate: Positive = 0.03,
        num_edge_steps: Steps = 100,
        step_size: Positive = 0.01,
        num_steps: Steps = 100,
        batch_ratio: PositiveShare = 1.0,
        loss_cap: Positive | None = 4.0,
        homophily: NonNegative = 0.0,
    ) -> None:
        super().__init__(
            step_size=step_size,
            num_steps=num_steps,
            num_rounds=num_rounds,
            batch_ratio=batch_ratio,
            loss_cap=loss_cap,
            homophily=homophily,
        )
        self.learning_rate = learning_rate
        self.num_edge_steps = self.passes_to_choose = num_edge_steps

    def choose(self, candidates: Candidates, chosen: Bool[Tensor, "k t"]) -> Bool[Tensor, "k t"]:
        """Fit the weights of all candidates by Adam, and return the heaviest."""
        counts = chosen.sum(1)
        weight = Ascent(
            chosen.to(candidates.x.dtype),
            candidates.loss,
            lambda weight: Adam(weight, self.learning_rate),
            lambda weight: project(weight, counts),
            variable="edge weights",
        ).advance(self.num_edge_steps)
        rank = weight.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        return rank < counts[:, None]
