"""Injection attacks that find the new nodes' features by gradient steps: FGSM, PGD, SPEIT."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch_geometric.utils import degree

from robust_diffusion.attacks.base import FeaturesAndEdges, Need, Task, Victim
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.feature_set import FeatureSet, feature_set
from robust_diffusion.attacks.gradient_ascent import Adam, Ascent, Rule, Sign
from robust_diffusion.attacks.injection.base import (
    STARTS,
    InjectionAttack,
    StartName,
    connect,
    draw_targets,
)
from robust_diffusion.attacks.losses import LOSSES, LossName
from robust_diffusion.checks import NonNegative, Positive, Steps, validated
from robust_diffusion.operators import AnyFeatures


@validated("attacks.{self.name}")
class FeatureAttack(InjectionAttack):
    """An injection attack that finds the new nodes' features by gradient steps.

    These attacks can trade harm for disguise: if `homophily` > 0, they maximise the loss plus
    `homophily` times the mean similarity of an injected node and its neighbours (the harmonious
    adversarial objective).

    Reference: eq. (HAO), Chen et al. 2022, arXiv:2202.08057.

    Attributes:
        start: Features to start from, as far as the limits allow.
        loss_cap: Cap on the cross-entropy of a target; `None` for no cap.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"predictions", "feature_gradient"})
    start: ClassVar[StartName] = "zero"
    loss_cap: float | None = None

    def __init__(
        self,
        *,
        num_steps: Steps = 100,
        homophily: NonNegative = 0.0,
        loss: LossName = "cross_entropy",
    ) -> None:
        self.loss = loss
        self.num_steps = num_steps
        self.homophily = homophily

    def inject(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Draw the edges, then fit the features."""
        rows = draw_targets(task.targets, budget.injected_degrees, generator)
        edges = connect(task.edge_index, rows, task.x.size(0))
        start = STARTS[self.start](victim, task, rows, budget, generator)
        new = self.fit(victim, task, start, task.x, edges, feature_set(budget))
        return torch.cat([task.x, new]), edges

    def fit(
        self,
        victim: Victim,
        task: Task,
        start: Float[Tensor, "k f"],
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        allowed: FeatureSet,
    ) -> Float[Tensor, "k f"]:
        """Raise the loss by the features of the newest nodes."""
        disguise = self.disguise(x, edge_index, start.size(0))
        with_rows = victim.appending(x)

        def objective(free: Tensor) -> Tensor:
            new = allowed.exact(free)
            return self.objective(victim, task, with_rows(new), edge_index) + disguise(new)

        rule = partial(self.rule, unit=allowed.unit)
        ascent = Ascent(allowed.clip(start), objective, rule, allowed.clip)
        return allowed.exact(ascent.advance(self.num_steps))

    def objective(
        self, victim: Victim, task: Task, x: AnyFeatures, edge_index: Int[Tensor, "2 e"]
    ) -> Float[Tensor, ""]:
        """Compute the mean loss of the targets on an attacked graph, which the steps raise.

        An adaptive attack on a defence overrides it, to add the quantity that the defence checks.
        """
        if self.loss == "cross_entropy":  # PyTorch's mean, since published results have its bits
            return task.loss(victim(x, edge_index), cap=self.loss_cap)
        return LOSSES[self.loss](victim(x, edge_index)[task.targets], task.labels).mean()

    @abstractmethod
    def rule(self, free: Tensor, unit: float = 1.0) -> Rule:
        """Build the step rule for a variable of this unit."""

    def disguise(
        self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"], num_new: int
    ) -> Callable[[Tensor], Tensor | float]:
        """Return the term that HAO adds to the loss, as a function of the newest features."""
        if self.homophily == 0:
            return lambda _: 0.0
        around = neighbourhood(x, edge_index, num_new)
        return lambda new: self.homophily * similarity(new, around).mean()


@validated("attacks.{self.name}")
class AdamAttack(FeatureAttack):
    """A `FeatureAttack` that takes Adam's steps; `learning_rate` is positive."""

    def __init__(
        self,
        *,
        learning_rate: Positive = 0.01,
        num_steps: Steps = 100,
        homophily: NonNegative = 0.0,
        loss: LossName = "cross_entropy",
    ) -> None:
        super().__init__(num_steps=num_steps, homophily=homophily, loss=loss)
        self.learning_rate = learning_rate

    def rule(self, free: Tensor, unit: float = 1.0) -> Rule:
        """Build Adam's step rule."""
        return Adam(free, self.learning_rate, unit)


@validated("attacks.{self.name}")
class SignAttack(FeatureAttack):
    """A `FeatureAttack` with steps of length `step_size` > 0 along the sign of the gradient."""

    def __init__(
        self,
        *,
        step_size: Positive = 0.01,
        num_steps: Steps = 100,
        homophily: NonNegative = 0.0,
        loss: LossName = "cross_entropy",
    ) -> None:
        super().__init__(num_steps=num_steps, homophily=homophily, loss=loss)
        self.step_size = step_size

    def rule(self, free: Tensor, unit: float = 1.0) -> Rule:
        """Build the rule of sign steps."""
        return Sign(free, self.step_size, unit)


class FGSM(SignAttack):
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


class PGD(SignAttack):
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
    start: ClassVar[StartName] = "small_normal"


class SPEIT(AdamAttack):
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
