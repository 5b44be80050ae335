"""GNNGuard's re-weighting, which prunes edges between dissimilar nodes and weights the others."""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor

from robust_diffusion.checks import validated
from robust_diffusion.operators import AnyFeatures, Graph, edge_cosine, gather_dst, row_sum
from robust_diffusion.operators import Gradient as Gradient

Threshold = Annotated[float, Ge(-1), Le(1)]


@validated("model")
@dataclass(frozen=True)
class Guard:
    r"""Guard that prunes edges of low cosine similarity and re-weights the others.

    Let s_uv be the similarity of a remaining edge, and p_uv its share among the edges that arrive
    at u. The weight becomes exp(p_uv), and that of the self-loop exp(1 / (kept edges + 1)). A
    pruned edge stays pruned in the following layers. Everything is computed edge by edge, in
    O(e d), with autograd, so that a white-box attack sees true gradients.

    Reference: Zhang and Zitnik 2020, arXiv:2006.08149; as GRB configures it.

    Args:
        threshold: Cosine similarity below which an edge is pruned, in [-1, 1].
        reweight: Re-weight the remaining edges; otherwise they keep their weights. The authors'
            public code of BeltramiGuard computes the weights but does not use them.
        gradient: `exact` differentiates the weights (pruning has no gradient almost everywhere);
            `straight_through` also passes a gradient to pruned edges, as if they were not pruned;
            `detached` treats the weights as constants, as GRB does, which hides gradients from a
            white-box attack.

    Raises:
        ConfigError: A value is out of range.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import Guard
        >>> from robust_diffusion.operators import Graph
        >>> graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> kept, weighted = Guard(threshold=0.5)(torch.eye(2), graph)
        >>> kept.weight.tolist()  # edges sorted by where they point to; self-loops stay
        [0.0, 1.0, 0.0, 1.0]
    """

    threshold: Threshold = 0.1
    reweight: bool = True
    gradient: Gradient = "exact"

    def __call__(self, x: AnyFeatures, graph: Graph) -> tuple[Graph, Graph]:
        """Prune and re-weight the edges, self-loops included, by the features of their ends.

        Returns:
            The edges with their old weights, or 0 if pruned, as input of the next layer's guard;
            and the same edges re-weighted, for message passing.
        """
        if self.gradient == "detached":
            with torch.no_grad():
                return self._judge(x, graph)
        return self._judge(x, graph)

    def adaptive(self) -> "Guard":
        """Return the same guard with a gradient at pruned edges."""
        return replace(self, gradient="straight_through")

    def _judge(self, x: AnyFeatures, graph: Graph) -> tuple[Graph, Graph]:
        loop = graph.src == graph.dst
        similarity = edge_cosine(x, graph) if isinstance(x, Tensor) else x.edge_cosine(graph)
        stays = loop | (similarity >= self.threshold)
        pruned = self._masked(graph.full_weight, stays)
        if not self.reweight:
            return replace(graph, weight=pruned), replace(graph, weight=pruned)
        # Similarities below 0, which a negative threshold may keep, count as 0.
        score = (graph.full_weight * similarity).masked_fill(loop, 0.0)
        score = self._masked(score, stays & (similarity > 0))
        total = row_sum(score, graph)
        share = score * gather_dst((total > 0) / total.clamp_min(1e-12), graph)
        neighbours = row_sum(pruned.masked_fill(loop, 0.0), graph)
        exponent = torch.where(loop, gather_dst((neighbours + 1).reciprocal(), graph), share)
        weight = self._masked(graph.full_weight * exponent.exp(), stays)
        return replace(graph, weight=pruned), replace(graph, weight=weight)

    def _masked(self, values: Tensor, mask: Tensor) -> Tensor:
        masked = torch.where(mask, values, 0.0)
        if self.gradient == "straight_through":
            return values + (masked - values).detach()
        return masked
