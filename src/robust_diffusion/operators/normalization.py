"""Edge weights over the degrees at both ends."""

import torch
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.operators.graph import Graph
from robust_diffusion.operators.segments import gather_dst, gather_src, segment_sum


def symmetric_weights(
    graph: Graph, degree: Float[Tensor, " n"] | None = None, *, order: float = -0.5
) -> Float[Tensor, " e"]:
    """Edge weights of D^order (A + I) D^order; `graph` has the edges of A + I.

    D is `degree`, or the sum of the weights that arrive at a node; an edge from a node that none
    reaches, which has no self-loop then, weighs 0.
    """
    if degree is None:
        degree = segment_sum(graph.weight, graph)
        degree = torch.where(degree > 0, degree, torch.inf)
    scale = degree.clamp_min(1e-38).pow(order)
    return gather_src(scale, graph) * graph.weight * gather_dst(scale, graph)
