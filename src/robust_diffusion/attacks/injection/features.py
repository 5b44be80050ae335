"""Gradient ascent on the features of injected nodes, and its presets FGSM, PGD and SPEIT."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch_geometric.utils import degree

from robust_diffusion.attacks.base import FeaturesAndEdges, Need, Task, Victim
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.feature_set import FeatureSet, feature_set
from robust_diffusion.attacks.gradient_ascent import Ascent, StepRule
from robust_diffusion.attacks.injection.base import STARTS, InjectionAttack, StartName, connect
from robust_diffusion.attacks.injection.candidate_edges import Candidates, exchange
from robust_diffusion.attacks.injection.edge_allocation import SHARINGS, SharingName
from robust_diffusion.attacks.losses import LOSSES, LossName
from robust_diffusion.checks import NonNegative, Positive, Steps, validated
from robust_diffusion.operators import AnyFeatures


class FeatureAscent(InjectionAttack):
    """Injection by gradient ascent on the new nodes' features, batch by batch.

    A batch gets edges and initial features, and steps raise the loss by its features while earlier
    batches stay as they are. Between two fits, `choose` looks for better edges with the features
    fixed. FGSM, PGD, SPEIT, TDGIA, AGIA, MetaGIA and GradientInjection are presets: they set the
    attributes below, and override a method where a value does not say enough.

    If `homophily` > 0, the attack trades harm for disguise: it maximises the loss plus `homophily`
    times the mean similarity of an injected node and its neighbours (the harmonious adversarial
    objective).

    Reference: eq. (HAO), Chen et al. 2022, arXiv:2202.08057.

    Attributes:
        start: Features to start from, as far as the limits allow.
        edges: How the new nodes distribute their edges.
        batch_ratio: Share of the injected nodes in one batch, in (0, 1].
        loss_cap: Cap on the cross-entropy of a target; `None` for no cap.
        swap_ratio: Largest share of a batch's edges that `choose` exchanges, in (0, 1].
        passes_to_choose: Forward passes of `choose`, roughly.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"predictions", "feature_gradient"})
    start: StartName = "zero"
    edges: SharingName = "drawn"
    batch_ratio: float = 1.0
    loss_cap: float | None = None
    swap_ratio: float = 0.5
    passes_to_choose: int = 3

    def __init__(
        self, steps: StepRule, *, num_steps: int, homophily: float = 0.0, num_rounds: int = 0
    ) -> None:
        self.steps = steps
        self.num_steps = num_steps
        self.homophily = homophily
        self.steps_per_fit = (num_steps,) * (1 + num_rounds)

    def expected_passes(self, budget: Budget, task: Task, victim: Victim) -> int | None:
        """See `Attack`; every batch is fitted once, and again whenever its edges are reselected."""
        batches = -(-budget.max_injected_nodes // self.batch_size(budget, len(task.targets)))
        rounds = len(self.steps_per_fit) - 1
        return batches * (sum(self.steps_per_fit) + rounds * self.passes_to_choose) or None

    def batch_size(self, budget: Budget, num_targets: int) -> int:
        """Return the number of nodes in one batch, at least 1."""
        return max(1, int(budget.max_injected_nodes * self.batch_ratio))

    def inject(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Inject the nodes batch by batch."""
        if "edge_gradient" in self.needs:
            victim.check_edge_gradient()
        x, edge_index, allowed = task.x, task.edge_index, self.feature_set(budget)
        degrees, size = budget.injected_degrees, self.batch_size(budget, task.targets.numel())
        for first in range(0, len(degrees), size):
            batch = degrees[first : first + size]
            rows = self.place(victim, task, (x, edge_index), batch, budget, generator)
            new = self.initial(victim, task, rows, budget, generator)
            for i, num_steps in enumerate(self.steps_per_fit):
                if i:
                    chosen = torch.stack([torch.isin(task.targets, row) for row in rows])
                    moved = torch.cat([x, new])
                    ends = Candidates(victim, task, moved, edge_index, len(rows), self.loss_cap)
                    rows = [task.targets[row] for row in self.choose(ends, chosen)]
                edges = connect(edge_index, rows, x.size(0))
                new = self.fit(victim, task, new, x, edges, allowed, num_steps)
            x, edge_index = torch.cat([x, new]), edges
        return x, edge_index

    def feature_set(self, budget: Budget) -> FeatureSet:
        """Return the set of features whose relaxed variable the steps move."""
        return feature_set(budget)

    def place(
        self,
        victim: Victim,
        task: Task,
        graph: FeaturesAndEdges,
        degrees: list[int],
        budget: Budget,
        generator: Generator,
    ) -> list[Int[Tensor, "_"]]:
        """Return the targets of each node of a batch, on the graph with the earlier batches."""
        return SHARINGS[self.edges](victim, task, graph, degrees, generator)

    def initial(
        self, victim: Victim, task: Task, rows: list[Tensor], budget: Budget, generator: Generator
    ) -> Float[Tensor, "k f"]:
        """Return the relaxed features that the first fit starts from."""
        return STARTS[self.start](victim, task, rows, budget, generator)

    def choose(self, candidates: Candidates, chosen: Bool[Tensor, "k t"]) -> Bool[Tensor, "k t"]:
        """Return better edges, without changing the number of edges of any new node."""
        return exchange(candidates, chosen, self.swap_ratio)

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
        """Raise the objective by the features of the newest nodes."""
        disguise = self.disguise(x, edge_index, start.size(0))
        with_rows = victim.appending(x)

        def objective(free: Tensor) -> Tensor:
            new = allowed.exact(free)
            return self.objective(victim, task, with_rows(new), edge_index) + disguise(new)

        rule = partial(self.steps.of, unit=allowed.unit)
        ascent = Ascent(allowed.clip(start), objective, rule, allowed.clip)
        return allowed.nearest(ascent.advance(num_steps))

    def objective(
        self, victim: Victim, task: Task, x: AnyFeatures, edge_index: Int[Tensor, "2 e"]
    ) -> Float[Tensor, ""]:
        """Compute the mean loss of the targets on an attacked graph, which the steps raise.

        An adaptive attack on a defence overrides it, to add the quantity that the defence checks.
        """
        if self.steps.loss == "cross_entropy":  # PyTorch's mean; published results have its bits
            return task.loss(victim(x, edge_index), cap=self.loss_cap)
        return LOSSES[self.steps.loss](victim(x, edge_index)[task.targets], task.labels).mean()

    def disguise(
        self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"], num_new: int
    ) -> Callable[[Tensor], Tensor | float]:
        """Return the term that HAO adds to the loss, as a function of the newest features."""
        if self.homophily == 0:
            return lambda _: 0.0
        around = neighbourhood(x, edge_index, num_new)
        return lambda new: self.homophily * similarity(new, around).mean()


@validated("attacks.{self.name}")
class FGSM(FeatureAscent):
    """Fast gradient sign method on injected features: x <- clamp(x + step_size sign(grad loss)).

    Each new node gets edges to uniformly drawn, distinct target nodes. The features start midway
    between the limits and take sign steps up the loss of the target nodes. Goodfellow et
    al.'s method is a single step; GRB's FGSM takes many, and differs from its PGD in the start.

    Reference: Goodfellow et al. 2015, arXiv:1412.6572; GRB's injection form, arXiv:2111.04314.

    Args:
        step_size: Change of each feature in one step, positive; see `Budget.scale_steps`.
        num_steps: Gradient steps on the features, at least 0.
        homophily: Weight of the similarity of injected nodes and their neighbours, at least 0.
        loss: Loss that the steps raise; see `attacks.losses`. GRB 0.1.0 uses `own_logit`.

    Examples:
        >>> from robust_diffusion.attacks import FGSM
        >>> FGSM(num_steps=2).kind
        'injection'
    """

    name = "fgsm"

    def __init__(
        self,
        *,
        step_size: Positive = 0.01,
        num_steps: Steps = 100,
        homophily: NonNegative = 0.0,
        loss: LossName = "cross_entropy",
    ) -> None:
        steps = StepRule(loss=loss, rule="sign", step_size=step_size)
        super().__init__(steps, num_steps=num_steps, homophily=homophily)


class PGD(FGSM):
    """Projected gradient descent on injected features: sign steps from a random start.

    It differs from `FGSM` in the start: the features are drawn from a normal distribution around
    the midpoint of the limits; the standard deviation is a tenth of the distance to a limit.

    Reference: Madry et al. 2018, arXiv:1706.06083; GRB's injection form, arXiv:2111.04314.

    Args:
        step_size: Change of each feature in one step, positive; see `FGSM` for all other
            arguments.

    Deviation: GRB uses a tenth of the upper limit, which is the same for symmetric limits.

    Examples:
        >>> from robust_diffusion.attacks import PGD
        >>> PGD(num_steps=2).kind
        'injection'
    """

    name = "pgd"
    start = "small_normal"


@validated("attacks.{self.name}")
class SPEIT(FeatureAscent):
    """SPEIT: inject nodes at random targets, then raise the model's loss by their features.

    Each new node gets edges to uniformly drawn, distinct target nodes. The features start midway
    between the limits and ascend the loss, by default the cross-entropy, against the model's own
    clean predictions, clamped to the feature limits after each step.

    Reference: Zheng et al., first place of KDD Cup 2020; GRB's "random" mode, arXiv:2111.04314;
    section "Attack Setup", arXiv:2209.07754.

    Args:
        learning_rate: Adam's learning rate, positive. For all other arguments see `FGSM`, except
            `step_size`.

    Examples:
        >>> from robust_diffusion.attacks import SPEIT
        >>> SPEIT(num_steps=2).kind
        'injection'
    """

    name = "speit"

    def __init__(
        self,
        *,
        learning_rate: Positive = 0.01,
        num_steps: Steps = 100,
        homophily: NonNegative = 0.0,
        loss: LossName = "cross_entropy",
    ) -> None:
        steps = StepRule(loss=loss, step_size=learning_rate)
        super().__init__(steps, num_steps=num_steps, homophily=homophily)


def neighbourhood(
    x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"], num_new: int
) -> Float[Tensor, "k f"]:
    """Sum the neighbours of each new node, r_u = sum over v of x_v / sqrt(d_u d_v).

    The new nodes are numbered from n, and no two of them are joined.

    Reference: node-centric homophily, arXiv:2202.08057.
    """
    n = x.size(0)
    scale = degree(edge_index[0], n + num_new, dtype=x.dtype).clamp_min(1).rsqrt()
    src, dst = edge_index[:, edge_index[1] >= n]
    around = x.new_zeros(num_new, x.size(1))
    return around.index_add_(0, dst - n, (scale[src] * scale[dst])[:, None] * x[src])


def similarity(new: Float[Tensor, "k f"], around: Float[Tensor, "k f"]) -> Float[Tensor, " k"]:
    """Compute the cosine similarity of each new node and its neighbourhood.

    The length of a new node is at least a tenth of that of its neighbourhood. At 0, where SPEIT
    starts, the gradient of the cosine is infinite, and one such step would stay in Adam's moments.
    """
    length = around.norm(dim=1).clamp_min(1e-12)
    squared, floor = new.square().sum(1), (0.1 * length).square()
    # Avoids the gradient of the norm, which does not exist at 0.
    new_length = torch.where(squared > floor, squared, floor).sqrt()
    scale: Tensor = new_length * length
    return (new * around).sum(1) / scale
