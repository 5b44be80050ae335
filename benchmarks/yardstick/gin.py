"""GIN's layer in the order of its equation: sum over neighbours, then apply the MLP."""

from torch import Tensor

from robust_diffusion.models.convolutional import GINConv
from robust_diffusion.operators import Graph, spmm


def sums_first(conv: GINConv, x: Tensor, graph: Graph) -> Tensor:
    """Apply the MLP to (1 + eps) x plus the weighted sum over incoming edges."""
    return conv.nn((1 + conv.eps) * x + spmm(graph.weight, x, graph))
