"""GCN-Jaccard."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from robust_diffusion.checks import Share
from robust_diffusion.models.adaptive import StraightThrough
from robust_diffusion.models.gcn import gcn_convs
from robust_diffusion.models.raw_features import RawFeatures
from robust_diffusion.models.stack import Apply, LayerStack
from robust_diffusion.operators import EdgeValues, Gradient, Graph, symmetric_weights
from robust_diffusion.operators.edges import VALUES_AT_A_TIME
from robust_diffusion.operators.graph import gather_dst, gather_src
from robust_diffusion.system.tensor_hashes import ByTensor


class GCNJaccard(StraightThrough, LayerStack):
    """Graph convolutions along edges whose ends share words: sum min / sum max of their counts.

    Of 0 and 1 that is the Jaccard similarity of two sets of words. Features are read as they were
    before they were normalised, and count nothing below 0.

    Reference: Wu et al. 2019, arXiv:1903.01610; the threshold as in DeepRobust, arXiv:2005.06149.

    Deviation: The paper removes edges of a similarity of 0, of words that are 0 or 1.

    Args:
        in_channels: Number of input features; it and those not named here are as for `GCN`.
        threshold: Edges of a lower similarity are pruned, in [0, 1].
        gradient: With respect to the edge weights: `exact`, that of the edges that stay;
            `straight_through`, as if all had stayed, and in the features by the similarity;
            `detached`, none.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GCNJaccard
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GCNJaccard(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        *widths: Any,
        threshold: Share = 0.01,
        gradient: Gradient = "exact",
        **options: Any,
    ) -> None:
        super().__init__(*widths, **options)
        self.stack(gcn_convs(self.widths))
        self.raw = RawFeatures()
        self.threshold = threshold
        self.gradient: Gradient = gradient

    def along(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Every layer sums along the normalised edges that stay."""
        graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        through = self.gradient == "straight_through"

        is_followed = through and torch.is_grad_enabled()

        def compute() -> EdgeValues:
            with torch.set_grad_enabled(is_followed):
                return shared_words(self.raw(x).clamp_min(0), graph)

        if is_followed:
            similarity = compute()
        else:
            of_features = _FOUND.kept(self.raw.normalized, "features", ByTensor)
            of_edges = of_features.kept(x, "edges", ByTensor)
            similarity = of_edges.kept(edge_index, "similarity", compute)
        stays = (graph.src == graph.dst) | (similarity >= self.threshold)
        weight = torch.where(stays, graph.weight, 0)
        if through:
            unpruned = graph.weight * (1 + similarity - similarity.detach())
            weight = unpruned + (weight - unpruned).detach()
        graph = replace(graph, weight=weight.detach() if self.gradient == "detached" else weight)
        graph = replace(graph, weight=symmetric_weights(graph))
        return lambda conv, x: conv(x, graph)


_FOUND = ByTensor()
"""Similarities that training asks for in each epoch, by scale, features and edges."""


def shared_words(counts: Float[Tensor, "n f"], graph: Graph) -> EdgeValues:
    """Sum of the lower over sum of the higher counts at both ends of each edge; 0 for no word."""
    # Some columns at a time: features at both ends of every edge would not fit into memory.
    columns = max(16, VALUES_AT_A_TIME // max(1, graph.num_edges))
    parts: list[Tensor] = [
        checkpoint(_distance, part, graph, use_reentrant=False, preserve_rng_state=False)
        for part in torch.split(counts, columns, dim=1)
    ]
    apart = torch.stack(parts).sum(0)
    total = counts.sum(1)
    both = gather_dst(total, graph) + gather_src(total, graph)
    return (both - apart) / (both + apart).clamp_min(1e-9)


def _distance(counts: Float[Tensor, "n f"], graph: Graph) -> EdgeValues:
    return (gather_dst(counts, graph) - gather_src(counts, graph)).abs().sum(1)
