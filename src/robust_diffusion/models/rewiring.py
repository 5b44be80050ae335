"""Random change of the edges in training, as in the authors' public code."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.checks import PositiveShare, Probability, validated
from robust_diffusion.operators import Graph


@validated("rewiring")
@dataclass(frozen=True)
class Rewiring:
    """Keep a random part of the edges, add random ones, drop those of least similarity.

    The paper does not mention it; the authors' code does it in every layer and training pass,
    never at test time.

    Args:
        keep_ratio: Share of the edges, self-loops included, that is kept, in (0, 1].
        add_ratio: Share of random edges among all nodes, in [0, 1): n (1 / (1 - add_ratio) - 1)
            directed edges are drawn, and those that exist already are dropped.
        drop_quantile: Edges of a similarity up to this quantile are dropped, in [0, 1).

    Raises:
        ConfigError: A ratio out of range.

    Examples:
        >>> from robust_diffusion import GraphPDE, Rewiring
        >>> model = GraphPDE(5, out_channels=3, rewiring=Rewiring(keep_ratio=0.8))
        >>> model.layers[0].rewiring.keep_ratio
        0.8
    """

    keep_ratio: PositiveShare = 0.5
    add_ratio: Probability = 0.02
    drop_quantile: Probability = 0.05

    def __call__(self, graph: Graph, similarity: Callable[[Graph], Float[Tensor, " e"]]) -> Graph:
        """Draw a rewired graph; `similarity` scores the kept and added edges."""
        device = graph.src.device
        sample = torch.randperm(graph.num_edges, device=device)
        sample = sample[: int(graph.num_edges * self.keep_ratio)]
        num_added = int(graph.num_nodes * (1 / (1 - self.add_ratio) - 1))
        added = torch.randint(graph.num_nodes, (2, num_added), device=device)
        edge_index = torch.cat([graph.edge_index[:, sample], added], 1)
        weight = torch.cat([graph.weight[sample], graph.weight.new_ones(num_added)])
        # An added edge that exists already must not count twice: keep the first of each.
        flat = edge_index[1] * graph.num_nodes + edge_index[0]
        unique, inverse = torch.unique(flat, return_inverse=True)
        first = torch.full_like(unique, flat.numel())
        first = first.scatter_reduce(0, inverse, torch.arange(flat.numel(), device=device), "amin")
        dense = Graph(edge_index[0, first], edge_index[1, first], weight[first], graph.num_nodes)
        if self.drop_quantile == 0 or dense.num_edges == 0:
            return dense
        scores = similarity(dense).detach()
        stays = (scores > torch.quantile(scores, self.drop_quantile)).nonzero().squeeze(1)
        return Graph(dense.src[stays], dense.dst[stays], dense.weight[stays], graph.num_nodes)
