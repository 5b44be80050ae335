"""TDGIA, topological defective graph injection."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor

from robust_diffusion.attacks.base import FeaturesAndEdges, Task, Victim
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.feature_set import FeatureSet, feature_set
from robust_diffusion.attacks.gradient_ascent import Ascent
from robust_diffusion.attacks.injection.base import connect
from robust_diffusion.attacks.injection.edge_allocation import deal, defect_order
from robust_diffusion.attacks.injection.features import AdamAttack
from robust_diffusion.checks import NonNegative, Positive, PositiveShare, Steps, validated

_Variant = Literal["strict", "grb"]


@validated("attacks.{self.name}")
class TDGIA(AdamAttack):
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
        super().__init__(learning_rate=learning_rate, num_steps=num_steps, homophily=homophily)
        self.variant = variant
        self.batch_ratio = batch_ratio

    @classmethod
    def unread(cls, options: Mapping[str, Any]) -> frozenset[str]:
        """See `Attack`; the sine map fits the limits whatever their distance."""
        return super().unread(options) | {"budget.scale_steps"}

    def expected_passes(self, budget: Budget, num_targets: int) -> int | None:
        """See `Attack`."""
        batches = -(-budget.max_injected_nodes // self._batch(budget))
        return batches * self.num_steps or None

    def _batch(self, budget: Budget) -> int:
        return max(1, int(budget.max_injected_nodes * self.batch_ratio))

    def inject(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Select the targets of each batch, then fit its features."""
        x, edge_index, batch = task.x, task.edge_index, self._batch(budget)
        all_degrees = budget.injected_degrees
        for start in range(0, len(all_degrees), batch):
            degrees = all_degrees[start : start + batch]
            order = defect_order(
                victim, task, (x, edge_index), sum(degrees), max(all_degrees), generator
            )
            edge_index = connect(edge_index, self._deal(order, degrees), x.size(0))
            angle = torch.randn(
                len(degrees), x.size(1), generator=generator, dtype=torch.float32
            ).to(x)
            new = self._fit_features(angle, victim, task, x, edge_index, feature_set(budget))
            x = torch.cat([x, new])
        return x, edge_index

    def _deal(self, order: Tensor, degrees: list[int]) -> list[Tensor]:
        """Deal the ordered targets out to the new nodes."""
        if self.variant == "strict":
            return deal(order, degrees)
        # GRB deals the list out once; nodes after its end get no edge.
        ends = list(accumulate(degrees))
        return [order[end - count : end] for end, count in zip(ends, degrees, strict=True)]

    def _fit_features(
        self,
        start: Tensor,
        victim: Victim,
        task: Task,
        x: Tensor,
        edge_index: Tensor,
        allowed: FeatureSet,
    ) -> Float[Tensor, "k f"]:
        low, high = allowed.low, allowed.high
        strict = self.variant == "strict"
        centre: float = (low + high) / 2 if strict else 0.0
        radius: float = (high - low) / 2 if strict else high
        labels, disguise = task.labels, self.disguise(x, edge_index, start.size(0))
        with_rows = victim.appending(x)

        def features(angle: Tensor) -> Tensor:
            return centre + radius * torch.sin(angle)

        def objective(angle: Tensor) -> Tensor:
            new = allowed.exact(features(angle))
            logits = victim(with_rows(new), edge_index)[task.targets]
            margin = self.MARGIN - F.cross_entropy(logits, labels, reduction="none")
            return disguise(new) - F.relu(margin).square().mean()

        ascent = Ascent(start, objective, self.rule)
        new = features(ascent.advance(self.num_steps))
        # centre + radius can round above the limit.
        return allowed.exact(allowed.clip(new) if strict else new)
