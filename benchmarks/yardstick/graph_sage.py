"""GraphSAGE's layer in the form of its equation: all channels of the projection at once."""

import torch
from torch import Tensor

from robust_diffusion.models.convolutional import SMALLEST_SQUARE, SAGEConv
from robust_diffusion.operators import Graph, spmm


def pools_whole(conv: SAGEConv, x: Tensor, graph: Graph) -> Tensor:
    """Compute W x + W' r, with r the root mean square of the projected neighbours."""
    squares = spmm(graph.weight, conv.lin(x).relu().square(), graph)
    return conv.lin_l(torch.sqrt(squares + SMALLEST_SQUARE)) + conv.lin_r(x)
