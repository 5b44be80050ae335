"""GNNGuard's re-weighting: edges between unlike nodes go, the others count by likeness."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.checks import check_choice, check_number
from robust_diffusion.operators import Graph, edge_dot, gather_dst, segment_sum

Gradient = Literal["exact", "straight_through", "detached"]

VALUES_AT_A_TIME = 2**25
"""How many features of edges' ends are held at once: 128 MB in single precision."""


@dataclass(frozen=True)
class Guard:
    r"""Prunes edges of a low cosine similarity and re-weights the others.

    With s_uv the similarity of an edge that stays and p_uv its share among the edges that arrive
    at u, the weight becomes exp(p_uv), and that of the self-loop exp(1 / (kept edges + 1)).
    A pruned edge stays pruned in the layers that follow. Everything is computed edge by edge, in
    O(e d), and enters autograd, so that a white-box attack sees true gradients.

    Reference: Zhang and Zitnik 2020, arXiv:2006.08149; as GRB configures it.

    Args:
        threshold: Edges of a cosine similarity below it are pruned, in [-1, 1].
        reweight: Re-weight the edges that stay; otherwise they keep their weights. The authors'
            public code of BeltramiGuard computes the weights and does not use them.
        gradient: `exact` differentiates the weights (pruning has no gradient almost everywhere);
            `straight_through` also lets a gradient through to pruned edges, as if they had
            stayed; `detached` takes the weights as constants, as GRB does, which hides gradients
            from a white-box attack.

    Raises:
        ConfigError: A value out of range.
    """

    threshold: float = 0.1
    reweight: bool = True
    gradient: Gradient = "exact"

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_number("model.threshold", self.threshold, at_least=-1, at_most=1)
        check_choice("model.gradient", self.gradient, get_args(Gradient))

    def __call__(self, x: Float[Tensor, "n f"], graph: Graph) -> tuple[Graph, Graph]:
        """Judge the edges by the features of their ends.

        Args:
            x: Node features.
            graph: The edges, self-loops included.

        Returns:
            The edges that stay, with the weights they had (pruned ones have 0), for the next
            layer to judge; and the same edges re-weighted, to pass messages along.
        """
        if self.gradient == "detached":
            with torch.no_grad():
                return self._judge(x, graph)
        return self._judge(x, graph)

    def _judge(self, x: Tensor, graph: Graph) -> tuple[Graph, Graph]:
        loop = graph.src == graph.dst
        similarity = cosine_similarity(x, graph)
        stays = loop | (similarity >= self.threshold)
        kept = self._masked(graph.weight, stays)
        if not self.reweight:
            return replace(graph, weight=kept), replace(graph, weight=kept)
        # A similarity below 0 that a negative threshold lets through counts nothing.
        score = (graph.weight * similarity).masked_fill(loop, 0.0)
        score = self._masked(score, stays & (similarity > 0))
        total = segment_sum(score, graph)
        share = score * gather_dst((total > 0) / total.clamp_min(1e-12), graph)
        neighbours = segment_sum(kept.masked_fill(loop, 0.0), graph)
        exponent = torch.where(loop, gather_dst((neighbours + 1).reciprocal(), graph), share)
        weight = self._masked(graph.weight * exponent.exp(), stays)
        return replace(graph, weight=kept), replace(graph, weight=weight)

    def _masked(self, values: Tensor, mask: Tensor) -> Tensor:
        masked = torch.where(mask, values, 0.0)
        if self.gradient == "straight_through":
            return values + (masked - values).detach()
        return masked


def cosine_similarity(x: Float[Tensor, "n f"], graph: Graph) -> Float[Tensor, " e"]:
    """Cosine of the angle between the features of both ends of each edge; 0 for zero features."""
    squared = x.square().sum(1)
    positive = squared > torch.finfo(x.dtype).tiny
    # The inner `where` keeps the gradient of features that are all 0 finite: it is 0.
    inverse = torch.where(positive, torch.where(positive, squared, 1.0).rsqrt(), 0.0)
    unit = (x * inverse[:, None])[:, None]
    # Some columns at a time: features at both ends of every edge would not fit into memory.
    columns = max(16, VALUES_AT_A_TIME // max(1, graph.num_edges))
    parts = [edge_dot(part, part, graph) for part in torch.split(unit, columns, dim=2)]
    return torch.stack(parts).sum(0).squeeze(1)
