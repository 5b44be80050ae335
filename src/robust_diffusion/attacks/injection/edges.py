"""Injection attacks that also select the edges by the model's gradient: AGIA and MetaGIA."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from robust_diffusion.attacks.base import FeaturesAndEdges, Need, Task, Victim, finite_gradient
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.feature_set import feature_set
from robust_diffusion.attacks.gradient_ascent import Adam, Ascent
from robust_diffusion.attacks.injection.base import connect, draw_targets, small_normal
from robust_diffusion.attacks.injection.features import SignAttack
from robust_diffusion.checks import NonNegative, Positive, PositiveShare, Steps, validated

MAX_CANDIDATES = 2**20
"""Most candidate edges with a weight at a time."""

HALVINGS = 40
"""Halvings after which an interval of length about 1 is below the resolution of a float."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """All candidate edges from some new nodes to the targets, on the current graph."""

    victim: Victim  # the model that is differentiated
    task: Task  # source of the targets and the loss
    x: Float[Tensor, "m f"]  # features of all nodes, the new ones last
    edge_index: Int[Tensor, "2 e"]  # edges without those of the new nodes
    num_new: int  # number of new nodes k
    loss_cap: float | None  # cap on the cross-entropy of a target

    @cached_property
    def all_edges(self) -> Int[Tensor, "2 e2"]:
        """Edges of the graph, then every candidate in both directions."""
        rows = [self.task.targets] * self.num_new
        return connect(self.edge_index, rows, self.x.size(0) - self.num_new)

    def loss(self, weight: Float[Tensor, "k t"]) -> Float[Tensor, ""]:
        """Compute the loss of the targets if each candidate has this weight; 0 means no edge."""
        weights = weight.flatten()
        ones = weights.new_ones(self.edge_index.size(1))
        logits = self.victim(self.x, self.all_edges, torch.cat([ones, weights, weights]))
        return self.task.loss(logits, cap=self.loss_cap)

    def slope(self, weight: Float[Tensor, "k t"]) -> Float[Tensor, "k t"]:
        """Compute the gradient of the loss with respect to the weights."""
        weight = weight.detach().requires_grad_()
        return finite_gradient(self.loss(weight), weight, "edge weights")


@validated("attacks.{self.name}")
class EdgeAttack(SignAttack):
    """An injection attack that alternates between features and edges, batch by batch.

    A batch of new nodes starts with random edges and small random features. In each round, `choose`
    looks for better edges with the features fixed, and then sign steps fit the features to the
    edges. Earlier batches stay as they are.

    Batches are smaller than `batch_ratio` if one would have more than 2^20 candidate edges. Without
    `loss_cap`, edges gather where the loss is largest, which is at targets that are already
    misclassified.
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

    def expected_passes(self, budget: Budget, num_targets: int) -> int | None:
        """See `Attack`; every round fits the features again."""
        batches = -(-budget.max_injected_nodes // self._batch(budget, num_targets))
        per_batch = self.num_steps + self.num_rounds * (self.num_steps + self.passes_to_choose)
        return batches * per_batch or None

    def _batch(self, budget: Budget, num_targets: int) -> int:
        most = MAX_CANDIDATES // num_targets
        return max(1, min(int(budget.max_injected_nodes * self.batch_ratio), most))

    @property
    def passes_to_choose(self) -> int:
        """Forward passes of `choose`, roughly."""
        return 3

    def inject(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Inject the nodes batch by batch."""
        victim.check_edge_gradient()
        x, edge_index, allowed = task.x, task.edge_index, feature_set(budget)
        all_degrees, t = budget.injected_degrees, task.targets.numel()
        batch = self._batch(budget, t)
        for first in range(0, len(all_degrees), batch):
            degrees = all_degrees[first : first + batch]
            chosen = torch.zeros(len(degrees), t, dtype=torch.bool)
            drawn = draw_targets(torch.arange(t), degrees, generator)
            for row, targets in zip(chosen, drawn, strict=True):
                row[targets] = True
            chosen = chosen.to(x.device)
            rows = [task.targets[row] for row in chosen]
            new = small_normal(victim, task, rows, budget, generator)
            edges = connect(edge_index, rows, x.size(0))
            new = self.fit(victim, task, new, x, edges, allowed)
            for _ in range(self.num_rounds):
                candidates = Candidates(
                    victim, task, torch.cat([x, new]), edge_index, len(degrees), self.loss_cap
                )
                chosen = self.choose(candidates, chosen)
                rows = [task.targets[row] for row in chosen]
                edges = connect(edge_index, rows, x.size(0))
                new = self.fit(victim, task, new, x, edges, allowed)
            x, edge_index = torch.cat([x, new]), edges
        return x, edge_index

    @abstractmethod
    def choose(self, candidates: Candidates, chosen: Bool[Tensor, "k t"]) -> Bool[Tensor, "k t"]:
        """Return better edges, without changing the number of edges of any new node."""


@validated("attacks.{self.name}")
class AGIA(EdgeAttack):
    """Adaptive injection: fit the weights of all candidate edges by Adam, then use the heaviest.

    In each round, the weights of all edges from the batch to the targets start at 1 for present
    edges and 0 for absent ones, and ascend the loss. After each step they are projected onto
    weights in [0, 1] whose sum at each node is at most its number of edges. The heaviest become
    edges.

    Reference: AGIA, appendix of Chen et al. 2022, arXiv:2202.08057.

    Args:
        step_size: Change of each feature in one step, positive; see `Budget.scale_steps`.
        num_steps: Gradient steps on the features per fit, at least 0.
        num_rounds: Times that a batch's edges are reselected, at least 0.
        learning_rate: Adam's learning rate for the edge weights, positive.
        num_edge_steps: Gradient steps on the edge weights per round, at least 0.
        batch_ratio: Share of the injected nodes in one batch, in (0, 1].
        loss_cap: Cap on the cross-entropy of a target, above 0; `None` for no cap. A cap keeps
            edges from gathering at targets that are already misclassified.
        homophily: Weight of the similarity of injected nodes and their neighbours, at least 0.

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
        self.num_edge_steps = num_edge_steps

    @property
    def passes_to_choose(self) -> int:
        """Forward passes of `choose`."""
        return self.num_edge_steps

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


def project(weight: Float[Tensor, "k t"], total: Int[Tensor, " k"]) -> Float[Tensor, "k t"]:
    """Project onto the nearest weights in [0, 1] whose sum over each row is at most its total.

    The result is clamp(weight - s, 0, 1) with the smallest s >= 0 in each row for which that holds.
    """
    low = weight.new_zeros(weight.size(0))
    high = weight.max(1).values.clamp_min(0)
    fits = weight.clamp(0, 1).sum(1) <= total
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = (weight - middle[:, None]).clamp(0, 1).sum(1) <= total
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    shift = torch.where(fits, torch.zeros_like(high), high)
    return (weight - shift[:, None]).clamp(0, 1)


@validated("attacks.{self.name}")
class MetaGIA(EdgeAttack):
    """MetaGIA: exchange injected edges by the gradient of the loss with respect to them.

    Let G be the gradient of the loss with respect to the weights of all edges from the batch to the
    targets. Each round exchanges present edges of low G for absent edges of high G at the same
    node, starting with the highest gain in G. If the loss does not rise, half as many exchanges are
    tried, and so on.

    Reference: MetaGIA, appendix of Chen et al. 2022, arXiv:2202.08057.

    Args:
        swap_ratio: Largest share of a batch's edges that one round exchanges, in (0, 1]. For all
            other arguments see `AGIA`, except those of its steps on edge weights.

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
        super().__init__(
            step_size=step_size,
            num_steps=num_steps,
            num_rounds=num_rounds,
            batch_ratio=batch_ratio,
            loss_cap=loss_cap,
            homophily=homophily,
        )
        self.swap_ratio = swap_ratio

    def choose(self, candidates: Candidates, chosen: Bool[Tensor, "k t"]) -> Bool[Tensor, "k t"]:
        """Exchange edges if the gradient predicts a gain and the loss confirms it."""
        return exchange(candidates, chosen, self.swap_ratio)


def exchange(
    candidates: Candidates, chosen: Bool[Tensor, "k t"], swap_ratio: float
) -> Bool[Tensor, "k t"]:
    """Exchange edges once, at most a share of them; see `MetaGIA`."""
    present = chosen.to(candidates.x.dtype)
    slope = candidates.slope(present)
    # Pair the i-th worst edge of each node with its i-th best candidate.
    most = min(int(chosen.sum(1).max()), int((~chosen).sum(1).max()))
    worst = slope.masked_fill(~chosen, torch.inf).topk(most, 1, largest=False)
    best = slope.masked_fill(chosen, -torch.inf).topk(most, 1)
    gain, order = (best.values - worst.values).flatten().sort(descending=True)
    row, out, into = order // max(most, 1), worst.indices.flatten(), best.indices.flatten()
    count = min(int((gain > 0).sum()), max(1, int(chosen.sum() * swap_ratio)))
    with torch.no_grad():
        loss = candidates.loss(present)
        while count:
            first = order[:count]
            changed = chosen.clone()
            changed[row[:count], out[first]] = False
            changed[row[:count], into[first]] = True
            if candidates.loss(changed.to(present.dtype)) > loss:
                return changed
            count //= 2
    return chosen
