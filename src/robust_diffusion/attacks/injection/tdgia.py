"""TDGIA, topological defective graph injection."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor

from robust_diffusion.attacks.base import FeaturesAndEdges, Task, Victim
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.feature_set import FeatureSet, feature_set
from robust_diffusion.attacks.gradient_ascent import StepRule
from robust_diffusion.attacks.injection.edge_allocation import deal, defect_order
from robust_diffusion.attacks.injection.features import FeatureAscent
from robust_diffusion.checks import NonNegative, Positive, PositiveShare, Steps, validated
from robust_diffusion.operators import AnyFeatures

_Variant = Literal["strict", "grb"]


@validated("attacks.{self.name}")
class TDGIA(FeatureAscent):
    """TDGIA: inject nodes in batches at topologically defective targets, then fit features.

    Each batch is joined to the targets with the highest score 0.9 s / d + 0.1 s / sqrt(d m). Here d
    is the degree plus 1, m the number of edges per injected node, and s = 2 + the current
    probability of the class predicted on the clean graph. The targets are spread over the predicted
    classes. The batch's features descend relu(4 - cross-entropy)^2 through a sine map onto the
    feature range, while earlier batches stay as they are.

    Reference: Zou et al. 2021, arXiv:2106.06663; GRB's form, arXiv:2111.04314; section "Attack
    Setup", arXiv:2209.07754.

    Args:
        learning_rate: Adam's learning rate, positive.
        num_steps: Gradient steps per batch, at least 0.
        batch_ratio: Share of the injected nodes in one batch, in (0, 1].
        variant: `strict` gives every injected node all its edges and stays within the feature
            limits. `grb` is GRB's code: a batch uses each target at most once, which on Cora
            spends 54 % of the edges, and the sine map is scaled by the upper limit alone, which
            leaves the range if the limits are not symmetric.
        homophily: Weight of the similarity of injected nodes and their neighbours, at least 0.

    Deviation: arXiv:2202.08057 adds the similarity inside the margin, where it has no effect once
    the targets are misclassified; here it is a separate term.

    Examples:
        >>> from robust_diffusion.attacks import TDGIA
        >>> TDGIA(num_steps=2).kind
        'injection'
    """

    name = "tdgia"
    MARGIN = 4.0

    def __init__(
        self,
        *,
        learning_rate: Positive = 0.01,
        num_steps: Steps = 100,
        batch_ratio: PositiveShare = 0.2,
        variant: _Variant = "strict",
        homophily: NonNegative = 0.0,
    ) -> None:
        steps = StepRule(loss="cross_entropy", step_size=learning_rate)
        super().__init__(steps, num_steps=num_steps, homophily=homophily)
        self.variant = variant
        self.batch_ratio = batch_ratio

    @classmethod
    def unread(cls, options: Mapping[str, Any]) -> frozenset[str]:
        """See `Attack`; the sine map fits the limits whatever their distance."""
        return super().unread(options) | {"budget.scale_steps"}

    def feature_set(self, budget: Budget) -> FeatureSet:
        """Return the features as a sine of angles, which the steps move."""
        return Sine(*budget.limits, feature_set(budget), self.variant)

    def place(
        self,
        victim: Victim,
        task: Task,
        graph: FeaturesAndEdges,
        degrees: list[int],
        budget: Budget,
        generator: Generator,
    ) -> list[Int[Tensor, "_"]]:
        """Deal the most defective targets out to the new nodes."""
        most = max(budget.injected_degrees)
        order = defect_order(victim, task, graph, sum(degrees), most, generator)
        if self.variant == "strict":
            return deal(order, degrees)
        # GRB deals the list out once; nodes after its end get no edge.
        ends = list(accumulate(degrees))
        return [order[end - count : end] for end, count in zip(ends, degrees, strict=True)]

    def initial(
        self, victim: Victim, task: Task, rows: list[Tensor], budget: Budget, generator: Generator
    ) -> Float[Tensor, "k f"]:
        """Draw the angles."""
        shape = len(rows), task.x.size(1)
        return torch.randn(*shape, generator=generator, dtype=torch.float32).to(task.x)

    def objective(
        self, victim: Victim, task: Task, x: AnyFeatures, edge_index: Int[Tensor, "2 e"]
    ) -> Float[Tensor, ""]:
        """Compute -relu(4 - cross-entropy)^2, averaged over the targets."""
        logits = victim(x, edge_index)[task.targets]
        margin = self.MARGIN - F.cross_entropy(logits, task.labels, reduction="none")
        return -F.relu(margin).square().mean()


@dataclass(frozen=True, eq=False)
class Sine(FeatureSet):
    """Allowed features as a sine of angles, which have no limits."""

    allowed: FeatureSet
    variant: _Variant

    def clip(self, x: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Return the angles as they are."""
        return x

    def exact(self, x: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Return the features of these angles, with a gradient."""
        return self.allowed.exact(self._sine(x))

    def nearest(self, x: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        """Return the features of these angles, within the limits unless the variant is GRB's."""
        new = self._sine(x)
        # centre + radius can round above the limit.
        return self.allowed.nearest(self.allowed.clip(new) if self.variant == "strict" else new)

    def _sine(self, angle: Float[Tensor, "k f"]) -> Float[Tensor, "k f"]:
        strict = self.variant == "strict"
        centre: float = (self.low + self.high) / 2 if strict else 0.0
        radius: float = (self.high - self.low) / 2 if strict else self.high
        return centre + radius * torch.sin(angle)
