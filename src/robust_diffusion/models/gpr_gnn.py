"""GPRGNN, whose weights of near and far neighbours are learned."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.checks import Share, Steps
from robust_diffusion.models.mlp import PropagatingMLP
from robust_diffusion.operators import Graph, spmm, symmetric_weights


class GPRGNN(PropagatingMLP):
    """MLP, then generalised PageRank of its predictions: sum over k of w_k A^k H, w learned.

    The weights start as those of a walk with restarts, w_k = alpha (1 - alpha)^k, the last
    (1 - alpha)^K; negative ones suit heterophilous graphs.

    Reference: Chien et al. 2021, arXiv:2006.07988.

    Args:
        in_channels: Number of input features; it and those not named here are as for `GCN`.
        num_layers: Number of layers of the MLP.
        num_iterations: Propagation steps K, at least 0.
        teleport: Probability alpha of a restart at first, in [0, 1].

    Examples:
        >>> import torch
        >>> from robust_diffusion import GPRGNN
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GPRGNN(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self, *widths: Any, num_iterations: Steps = 10, teleport: Share = 0.1, **options: Any
    ) -> None:
        super().__init__(*widths, **options)
        self.num_iterations = num_iterations
        decay = (1 - teleport) ** torch.arange(num_iterations + 1, dtype=torch.float32)
        decay[:-1] *= teleport
        self.weights = nn.Parameter(decay)

    def propagated(
        self, local: Float[Tensor, "n c"], graph: Graph, degree: Float[Tensor, " n"]
    ) -> Float[Tensor, "n c"]:
        """Sum of the steps of the walk, each by its learned weight."""
        weights, z = symmetric_weights(graph, degree), local
        out = self.weights[0] * z
        for weight in self.weights[1:]:
            z = spmm(weights, z, graph)
            out = out + weight * z
        return out
