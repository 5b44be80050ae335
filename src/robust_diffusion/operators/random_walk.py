"""Random walks: return probabilities, and diffusion by personalised PageRank."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from robust_diffusion.operators.edges import spmm
from robust_diffusion.operators.graph import (
    Graph,
    SortedEdges,
    gather_dst,
    row_sum,
    symmetric_weights,
)
from robust_diffusion.system.tensor_hashes import ByTensor

NODES_AT_A_TIME = 256
"""Number of nodes whose walks are followed at once, in tensors of n times as many entries."""

SCORES_AT_A_TIME = 64
"""The same for PageRank, whose many steps are fastest in cache."""

_KNOWN = ByTensor()
"""Return probabilities by weights that are not all 1."""


def return_probabilities(graph: Graph, steps: int) -> Float[Tensor, "n k"]:
    r"""Return the probabilities that a random walk is back after 1, 2, ... k = `steps` steps.

    .. math:: (P^i)_{uu}, \quad P_{uv} = w_{uv} / \sum_{v' \neq u} w_{uv'}

    Self-loops do not count, so that the first is 0; all are 0 at a node without other edges. They
    are exact, take time O(k n e), and are cached per edge list, or per tensor of weights that are
    not all 1. They are recomputed if the weights require a gradient, and the backward pass follows
    the walks again instead of saving n x n entries of each step.

    Reference: Random walk positional encoding, Dwivedi et al. 2021, arXiv:2110.07875.

    Args:
        graph: The edges; differentiable in their weights.
        steps: k, the longest walk, at least 1.

    Returns:
        Values in [0, 1].
    """
    weight, compute = graph.weight, partial(_return_probabilities, graph, steps)
    if weight is not None and weight.requires_grad and torch.is_grad_enabled():
        return compute()
    key = "return probabilities", steps, graph.dtype
    with torch.no_grad():
        if weight is None:
            return graph.edges.cached(key, compute)
        # The edges are part of the key, since other edges may have the same tensor of weights.
        return _KNOWN.kept(weight, (*key, graph.edges), compute)


def pagerank_graph(
    graph: Graph, teleport: float, steps: int, largest: int, *, straight_through: bool = False
) -> Graph:
    r"""Return a graph with edges to each node from its top nodes by personalised PageRank.

    .. math:: S \leftarrow (1 - \alpha) S D^{-1/2} (A + I) D^{-1/2} + \alpha I

    starting from S = I. Each row of S keeps its highest entries, which are the edges' weights. It
    takes time O(k n e), is cached for an edge list whose weights are all 1, and is differentiable
    in the weights otherwise.

    Args:
        graph: The edges of A + I.
        teleport: alpha, in [0, 1].
        steps: k, at least 0.
        largest: Entries of a row that are kept, at least 1; all of a smaller graph.
        straight_through: If the weights require a gradient, add the edges of `graph` that the
            result lacks, with a weight of 0 and the gradient of their entries.

    Returns:
        The diffused graph.
    """
    weighted = graph.full_weight.requires_grad and torch.is_grad_enabled()
    arguments = teleport, steps, min(largest, graph.num_nodes), straight_through and weighted
    if graph.weight is not None:
        return _pagerank_graph(graph, *arguments)
    key = "pagerank", graph.dtype, *arguments
    with torch.no_grad():
        return graph.edges.cached(key, lambda: _reached(_pagerank_graph(graph, *arguments)))


def _reached(graph: Graph) -> Graph:
    """Return a graph with a loop in place of each edge of weight 0.

    No walk leads along such an edge, but 0 times NaN is NaN, which would reach all nodes.
    """
    src = torch.where(graph.full_weight > 0, graph.src, graph.dst)
    return Graph(SortedEdges(src, graph.dst, graph.num_nodes), graph.weight)


def _pagerank_graph(
    graph: Graph, teleport: float, steps: int, largest: int, straight_through: bool
) -> Graph:
    step, n = (1 - teleport) * symmetric_weights(graph), graph.num_nodes
    nodes = torch.arange(n, device=step.device)

    def scores_of(starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = start = (nodes[:, None] == starts).to(step.dtype)
        for _ in range(steps):
            z = spmm(step, z, graph, transposed=True) + teleport * start
        values, others = z.topk(largest, 0)
        column = graph.dst - starts[0]
        inside = (column >= 0) & (column < starts.numel())
        at_edges = torch.where(inside, z[graph.src, column.clamp(0, starts.numel() - 1)], 0)
        return values, others, at_edges

    blocks = [
        checkpoint(scores_of, starts, use_reentrant=False, preserve_rng_state=False)
        for starts in torch.split(nodes, SCORES_AT_A_TIME)
    ]
    scores, others, at_edges = zip(*blocks, strict=True)
    values = torch.cat(scores, 1)
    weight, src = values.T.flatten(), torch.cat(others, 1).T.flatten()
    dst = nodes.repeat_interleave(largest)
    if straight_through:
        score = torch.stack(at_edges).sum(0)
        cut_off = score < gather_dst(values[-1], graph)
        weight = torch.cat([weight, torch.where(cut_off, score - score.detach(), 0)])
        dst, order = torch.cat([dst, graph.dst]).sort(stable=True)
        src, weight = torch.cat([src, graph.src])[order], weight[order]
    return Graph(SortedEdges(src, dst, n), weight)


def _return_probabilities(graph: Graph, steps: int) -> Tensor:
    weight = torch.where(graph.src == graph.dst, 0.0, graph.full_weight)
    degree = row_sum(weight, graph)
    degree = torch.where(degree > 0, degree, torch.inf)
    step = weight / gather_dst(degree, graph)
    nodes = torch.arange(graph.num_nodes, device=weight.device)

    def walks(starts: Tensor) -> Any:
        return checkpoint(
            _walks_from, starts, step, graph, steps, use_reentrant=False, preserve_rng_state=False
        )

    return torch.cat([walks(starts) for starts in torch.split(nodes, NODES_AT_A_TIME)])


def _walks_from(starts: Int[Tensor, " b"], step: Tensor, graph: Graph, steps: int) -> Tensor:
    """Return probabilities of some nodes: the columns of P, P^2, ... at them."""
    nodes = torch.arange(graph.num_nodes, device=step.device)
    walks = (nodes[:, None] == starts).to(step.dtype)
    back = []
    for _ in range(steps):
        walks = spmm(step, walks, graph)
        back.append(walks.gather(0, starts[None]).squeeze(0))
    return torch.stack(back, 1)
