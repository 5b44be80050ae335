"""Random walks that come back to where they began."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch.utils.weak import WeakIdKeyDictionary

from robust_diffusion.operators.graph import Graph
from robust_diffusion.operators.segments import gather_dst, segment_sum
from robust_diffusion.operators.spmm import spmm

NODES_AT_A_TIME = 256
"""Nodes whose walks are followed at once: tensors of n times so many entries."""

# By weights that are not all 1: their version, and what was found; an entry goes when they do.
_KNOWN: Any = WeakIdKeyDictionary()


def return_probabilities(graph: Graph, steps: int) -> Float[Tensor, "n k"]:
    r"""Probability that a random walk is back at its node after 1, 2, ... k = `steps` steps.

    .. math:: (P^i)_{uu}, \quad P_{uv} = w_{uv} / \sum_{v' \neq u} w_{uv'}

    Self-loops do not count, so that the first is 0; all are 0 at a node without other edges. They
    are exact, in time O(k n e), and are found once per edge list, or once per tensor of weights
    that are not all 1. Where these ask for their gradient they are found anew, and the backward
    pass follows the walks again instead of keeping n x n entries of each step.

    Reference: Random walk positional encoding, Dwivedi et al. 2021, arXiv:2110.07875.

    Args:
        graph: The edges; differentiable in their weights.
        steps: k, the longest walk, at least 1.

    Returns:
        Values in [0, 1].
    """
    weight = graph.weight
    if weight.requires_grad and torch.is_grad_enabled():
        return _return_probabilities(graph, steps)
    key = "return probabilities", steps, weight.dtype
    if graph.unweighted:
        with torch.no_grad():
            return graph.indexes.kept(key, lambda: _return_probabilities(graph, steps))
    if weight.is_inference():  # no version counter tells whether such a tensor has changed
        return _return_probabilities(graph, steps)
    if _KNOWN.get(weight, (None,))[0] != weight._version:
        _KNOWN[weight] = weight._version, {}
    known = _KNOWN[weight][1]
    if key not in known:
        with torch.inference_mode(mode=False), torch.no_grad():
            known[key] = _return_probabilities(graph, steps)
    return known[key]  # type: ignore[no-any-return]


def _return_probabilities(graph: Graph, steps: int) -> Tensor:
    weight = torch.where(graph.src == graph.dst, 0.0, graph.weight)
    degree = segment_sum(weight, graph)
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
