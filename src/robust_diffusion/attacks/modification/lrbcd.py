"""LRBCD and LGRBCD: PRBCD and GRBCD with a limit of flips at each node besides that of all."""

from fractions import Fraction
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.utils import degree

from robust_diffusion.attacks.modification.prbcd import (
    GRBCD,
    PRBCD,
    GRBCDAtTargets,
    Loss,
    PRBCDAtTargets,
)
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.checks import Count, Positive, PositiveShare, SomeSteps


def local_limits(problem: Problem, ratio: float) -> Int[Tensor, " n"]:
    """Most flips at each node: this share of its edges, rounded down."""
    share = Fraction(str(ratio))  # exact in decimals
    degrees: Tensor = degree(problem.edge_index[0], problem.x.size(0), dtype=torch.long)
    return degrees * share.numerator // share.denominator


def within_limits(
    pairs: Int[Tensor, "2 p"],
    weights: Float[Tensor, " p"],
    limits: Int[Tensor, " n"],
    worth: Float[Tensor, " p"],
) -> Float[Tensor, " p"]:
    """Weights cut, so that those at no node sum to more than its limit.

    Args:
        pairs: Different pairs of nodes.
        weights: In 0..1.
        limits: Of every node.
        worth: The room at the nodes is handed out from the largest down.
    """
    room = limits.tolist()
    cut = weights.tolist()
    ends = pairs.T.tolist()
    for i in worth.argsort(descending=True, stable=True).tolist():
        u, v = ends[i]
        cut[i] = min(cut[i], room[u], room[v])
        room[u] -= cut[i]
        room[v] -= cut[i]
    return weights.new_tensor(cut)


def best_within_limits(
    pairs: Int[Tensor, "2 p"], scores: Float[Tensor, " p"], limits: Int[Tensor, " n"], most: int
) -> Int[Tensor, " c"]:
    """Columns of the pairs with the highest scores, no node over its limit."""
    room = limits.tolist()
    order = scores.argsort(descending=True, stable=True)
    order = order[(limits[pairs[:, order]] > 0).all(0)]
    chosen: list[int] = []
    for column, (u, v) in zip(order.tolist(), pairs[:, order].T.tolist(), strict=True):
        if len(chosen) == most:
            break
        if room[u] > 0 and room[v] > 0:
            chosen.append(column)
            room[u] -= 1
            room[v] -= 1
    return order.new_tensor(chosen)


class LocalPRBCD(PRBCDAtTargets):
    """PyG's PRBCD with limits of each node."""

    limits: Int[Tensor, " n"]

    relaxed: Float[Tensor, " p"]

    def _project(self, budget: int, values: Tensor, eps: float = 1e-7) -> Tensor:
        local = self._within(self.block_edge_index, values.clamp(0, 1), values)
        self.relaxed = super()._project(budget, local, eps)  # which makes no weight larger
        return self.relaxed

    def _sample_final_edges(self, *arguments: Any, **further: Any) -> Any:
        self.relaxed = self.block_edge_weight.clone()  # of the best step
        return super()._sample_final_edges(*arguments, **further)

    def _get_modified_adj(
        self, edge_index: Tensor, edge_weight: Tensor, pairs: Tensor, weights: Tensor
    ) -> Any:
        if not weights.requires_grad:  # a sample; relaxed weights have been projected
            weights = self._within(pairs, weights, self.relaxed)
        return super()._get_modified_adj(edge_index, edge_weight, pairs, weights)

    def _within(self, pairs: Tensor, weights: Tensor, worth: Tensor) -> Tensor:
        large = weights > self.coeffs["eps"]  # others stay, as pairs that may be taken up
        cut = weights.clone()
        cut[large] = within_limits(pairs[:, large], weights[large], self.limits, worth[large])
        return cut


class LocalGRBCD(GRBCDAtTargets):
    """PyG's GRBCD with limits of each node."""

    limits: Int[Tensor, " n"]

    def _update(self, step_size: int, gradient: Tensor, *rest: Any, **further: Any) -> Any:
        pairs = self.block_edge_index
        chosen = best_within_limits(pairs, gradient, self.limits, step_size)
        ends = pairs[:, chosen].flatten()
        self.limits = self.limits.index_add(0, ends, -torch.ones_like(ends))
        only = torch.full_like(gradient, -torch.inf)
        only[chosen] = gradient[chosen]
        return super()._update(chosen.numel(), only, *rest, **further)


class LRBCD(PRBCD):
    """PRBCD that flips at most a share of each node's edges at that node.

    The limits are the attack's own, and keep it from spending all on few nodes: what is declared
    and audited is the budget of all flips. Before PRBCD's projection onto that, relaxed weights are
    cut, from the largest down, at nodes that have too much; so are samples at the end.

    Reference: Gosch et al. 2023, arXiv:2306.15427, on Geisler et al. 2021, arXiv:2110.14038.

    Args:
        local_ratio: Most flips at a node by its edges, in (0, 1], rounded down. All others are
            those of `PRBCD`.

    Raises:
        ConfigError: A number out of range or an unknown loss.

    Examples:
        >>> from robust_diffusion import GCN, LRBCD, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(edge_ratio=0.2), LRBCD(num_steps=2))
        >>> bool(graph.to_data().injected_mask.any())
        False
    """

    name = "lrbcd"
    implementation: ClassVar[Any] = LocalPRBCD

    def __init__(
        self,
        *,
        block_size: Count = 50_000,
        num_steps: SomeSteps = 125,
        resampling_ratio: PositiveShare = 0.8,
        learning_rate: Positive = 100.0,
        loss: Loss = "prob_margin",
        local_ratio: PositiveShare = 0.5,
    ) -> None:
        super().__init__(
            block_size=block_size,
            num_steps=num_steps,
            resampling_ratio=resampling_ratio,
            learning_rate=learning_rate,
            loss=loss,
        )
        self.local_ratio = local_ratio

    def build(self, model: nn.Module, problem: Problem) -> Any:
        """PyG's PRBCD with the limits of each node."""
        attack = super().build(model, problem)
        attack.limits = local_limits(problem, self.local_ratio)
        return attack


class LGRBCD(GRBCD):
    """GRBCD that flips at most a share of each node's edges at that node; see `LRBCD`.

    Reference: Gosch et al. 2023, arXiv:2306.15427, on Geisler et al. 2021, arXiv:2110.14038.

    Args:
        local_ratio: Most flips at a node by its edges, in (0, 1], rounded down. All others are
            those of `GRBCD`.

    Raises:
        ConfigError: A number out of range or an unknown loss.

    Examples:
        >>> from robust_diffusion import GCN, LGRBCD, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(edge_ratio=0.2), LGRBCD(num_steps=2))
        >>> bool(graph.to_data().injected_mask.any())
        False
    """

    name = "lgrbcd"
    implementation: ClassVar[Any] = LocalGRBCD

    def __init__(
        self,
        *,
        block_size: Count = 50_000,
        num_steps: SomeSteps = 125,
        loss: Loss = "masked",
        local_ratio: PositiveShare = 0.5,
    ) -> None:
        super().__init__(block_size=block_size, num_steps=num_steps, loss=loss)
        self.local_ratio = local_ratio

    def build(self, model: nn.Module, problem: Problem) -> Any:
        """PyG's GRBCD with the limits of each node."""
        attack = super().build(model, problem)
        attack.limits = local_limits(problem, self.local_ratio)
        return attack
