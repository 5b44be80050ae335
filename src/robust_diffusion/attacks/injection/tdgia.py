"""TDGIA."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import degree

from robust_diffusion.attacks.base import Classifier, PerturbedGraph, frozen
from robust_diffusion.attacks.budget import InjectionBudget
from robust_diffusion.attacks.injection.base import (
    FeatureOptimizingAttack,
    connect,
    predicted_labels,
)
from robust_diffusion.checks import check_choice, check_number

Variant = Literal["strict", "grb"]


class TDGIA(FeatureOptimizingAttack):
    """TDGIA: inject nodes in batches at topologically defective targets, then fit features.

    Each batch goes to the targets with the highest score 0.9 s / d + 0.1 s / sqrt(d m), where d
    is the degree plus 1, m the edges per injected node and s = 2 + the current probability of
    the class predicted on the clean graph; the targets are spread over the predicted classes.
    The batch's features descend relu(4 - cross-entropy)^2 through a sine map onto the
    feature range, while earlier batches stay as they are.

    Reference: Zou et al. 2021, arXiv:2106.06663; GRB's form, arXiv:2111.04314; section "Attack
    Setup", arXiv:2209.07754.

    Args:
        learning_rate: Adam's, positive.
        num_steps: Gradient steps per batch, at least 0.
        batch_ratio: Share of the injected nodes that goes in at a time, in (0, 1].
        variant: `strict` gives every injected node all its edges and stays within the feature
            limits. `grb` is GRB's code: a batch uses each target at most once, which on Cora
            spends 54 % of the edges, and the sine map is scaled by the upper limit alone, which
            leaves the range if the limits are not symmetric.

    Raises:
        ConfigError: A number out of range or an unknown variant.
    """

    name = "tdgia"
    SCORE_WEIGHTS = (0.9, 0.1)
    MARGIN = 4.0

    def __init__(
        self,
        *,
        learning_rate: float = 0.01,
        num_steps: int = 100,
        batch_ratio: float = 0.2,
        variant: Variant = "strict",
    ) -> None:
        super().__init__(learning_rate=learning_rate, num_steps=num_steps)
        check_choice("attacks.tdgia.variant", variant, get_args(Variant))
        self.variant = variant
        self.batch_ratio = check_number(
            "attacks.tdgia.batch_ratio", batch_ratio, above=0, at_most=1
        )

    def __call__(
        self,
        model: Classifier,
        data: Data,
        target_nodes: Int[Tensor, " t"],
        budget: InjectionBudget,
        generator: torch.Generator,
    ) -> PerturbedGraph:
        """Run the attack; see `Attack`."""
        budget.check_targets(target_nodes.numel())
        x, edge_index = data.x, data.edge_index
        assert x is not None
        assert edge_index is not None
        n, m = x.size(0), budget.max_edges_per_injected_node
        batch = max(1, int(budget.max_injected_nodes * self.batch_ratio))

        def target_logits(x: Tensor, edge_index: Tensor) -> Tensor:
            return model(x, edge_index)[target_nodes]

        with frozen(model):
            labels = predicted_labels(model, x, edge_index)[target_nodes]
            while (left := budget.max_injected_nodes - (x.size(0) - n)) > 0:
                k = min(batch, left)
                with torch.no_grad():
                    probability = F.softmax(target_logits(x, edge_index), 1)
                score = self._defect_score(
                    2 + probability.gather(1, labels[:, None]).squeeze(1),
                    degree(edge_index[1], x.size(0), dtype=x.dtype)[target_nodes] + 1,
                    m,
                )
                best = score.argsort(descending=True, stable=True)[: k * m]
                best = best[torch.randperm(best.numel(), generator=generator).to(best.device)]
                order = target_nodes[_spread_over_classes(best, labels[best])]
                edge_index = connect(edge_index, self._deal(order, k, m), x.size(0))
                start = torch.randn(k, x.size(1), generator=generator).to(x)
                new = self._fit_features(start, x, edge_index, labels, target_logits, budget.limits)
                x = torch.cat([x, new])
        return PerturbedGraph(x, edge_index, n)

    def _defect_score(self, s: Tensor, degree_plus_one: Tensor, m: int) -> Float[Tensor, " t"]:
        by_degree, by_root = self.SCORE_WEIGHTS
        return by_degree * s / degree_plus_one + by_root * s / (degree_plus_one * m).sqrt()

    def _deal(self, order: Tensor, k: int, m: int) -> list[Tensor]:
        """Hand the ordered targets out to k new nodes, m each."""
        if self.variant == "grb" or m == 0:
            # GRB hands the list out once; the nodes that come after its end get no edge.
            return [order[i * m : (i + 1) * m] for i in range(k)]
        # The list holds at least m different targets, so no node gets one of them twice.
        position = torch.arange(k * m, device=order.device).reshape(k, m)
        return list(order[position % order.numel()])

    def _fit_features(
        self,
        start: Tensor,
        x: Tensor,
        edge_index: Tensor,
        labels: Tensor,
        target_logits: Callable[[Tensor, Tensor], Tensor],
        limits: tuple[float, float],
    ) -> Float[Tensor, "k f"]:
        low, high = limits
        strict = self.variant == "strict"
        centre, radius = ((low + high) / 2, (high - low) / 2) if strict else (0.0, high)

        def features(angle: Tensor) -> Tensor:
            return centre + radius * torch.sin(angle)

        def loss(angle: Tensor) -> Tensor:
            logits = target_logits(torch.cat([x, features(angle)]), edge_index)
            margin = self.MARGIN - F.cross_entropy(logits, labels, reduction="none")
            return F.relu(margin).square().mean()

        new = features(self.minimize(start, loss))
        # centre + radius can round above the limit.
        return new.clamp(low, high) if strict else new


def _spread_over_classes(nodes: Tensor, labels: Tensor) -> Int[Tensor, " k"]:
    """Reorder nodes so that every stretch holds each class in its overall proportion.

    The i-th of c nodes of a class is placed at i / c of the way, which is what taking again and
    again from the class that has used the smallest share of its nodes gives.
    """
    order = torch.argsort(labels, stable=True)
    sorted_labels = labels[order]
    counts = torch.bincount(sorted_labels)
    first = counts.cumsum(0) - counts
    rank = torch.arange(nodes.numel(), device=nodes.device) - first[sorted_labels]
    share = rank / counts[sorted_labels]
    return nodes[order[torch.argsort(share, stable=True)]]
