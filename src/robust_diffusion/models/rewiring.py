"""Random change of the edges in training, as in the authors' public code."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from robust_diffusion.checks import PositiveShare, Probability, validated
from robust_diffusion.operators import Graph, SortedEdges


@validated("rewiring")
@dataclass(frozen=True)
class Rewiring:
    """Random rewiring: keep a random part of the edges, add random ones, drop the least similar.

    The paper does not mention it. The authors' code rewires in every layer and training pass, but
    never at test time.

    Args:
        keep_ratio: Share of the edges, self-loops included, to keep, in (0, 1].
        add_ratio: Share of random edges among all nodes, in [0, 1): n (1 / (1 - add_ratio) - 1)
            directed edges are drawn, and those that exist already are dropped.
        drop_quantile: Quantile of similarity up to which edges are dropped, in [0, 1).

    Raises:
        ConfigError: A ratio is out of range.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.models import Rewiring
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
        weight = graph.weight
        if weight is not None:
            weight = torch.cat([weight[sample], weight.new_ones(num_added)])
        # An added edge that exists already must not count twice, so only the first copy stays.
        pairs, order = (edge_index[1] * graph.num_nodes + edge_index[0]).sort(stable=True)
        first = torch.ones_like(order, dtype=torch.bool)
        torch.ne(pairs[1:], pairs[:-1], out=first[1:])
        counting = device.type in COUNTING
        if counting:
            order = order[first]
        joined = _with_edges(graph, edge_index[:, order], _at(weight, order))
        dense = joined if counting else _without(joined, ~first)
        if self.drop_quantile == 0 or dense.num_edges == 0:
            return dense
        scores = similarity(dense).detach()
        limit = _quantile(scores, self.drop_quantile, None if counting else first)
        return _without(dense, ~(scores > limit))


COUNTING = {"cpu"}
"""Types of devices on which counting edges is cheap; on others it is a host sync."""


def _without(graph: Graph, gone: Bool[Tensor, " e"]) -> Graph:
    """Return the graph without some edges; if counting is a host sync, their weight becomes 0."""
    if gone.device.type not in COUNTING:
        return replace(graph, weight=graph.full_weight.masked_fill(gone, 0))
    stays = (~gone).nonzero().squeeze(1)
    return _with_edges(graph, graph.edge_index[:, stays], _at(graph.weight, stays))


def _at(weight: Tensor | None, places: Tensor) -> Tensor | None:
    return None if weight is None else weight[places]


def _with_edges(graph: Graph, edge_index: Tensor, weight: Tensor | None) -> Graph:
    src, dst = edge_index
    return Graph(SortedEdges(src, dst, graph.num_nodes), weight, graph.dtype)


def _quantile(
    scores: Float[Tensor, " e"], q: float, counted: Bool[Tensor, " e"] | None
) -> Float[Tensor, ""]:
    """Return the quantile of the counted scores, interpolated as in `torch.quantile`.

    `None` counts all of them, in a tenth of that function's time and at any size.
    """
    if counted is None:
        place = q * scores.new_tensor(scores.numel() - 1)
        low, high = (scores.kthvalue(int(k) + 1).values for k in (place, place.ceil()))
    else:
        ordered = scores.masked_fill(~counted, torch.inf).sort().values
        place = q * (counted.sum() - 1).to(scores)
        low, high = ordered.index_select(0, torch.stack([place.long(), place.ceil().long()]))
    return torch.lerp(low, high, place - place.long())
