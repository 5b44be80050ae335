"""ElasticGNN, whose smoothing lets neighbours differ sharply across few edges."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.checks import NonNegative, Steps
from robust_diffusion.models.mlp import PropagatingMLP
from robust_diffusion.operators import Graph, spmm, symmetric_weights
from robust_diffusion.operators.graph import gather_dst, gather_src, segment_sum


class ElasticGNN(PropagatingMLP):
    """MLP, then steps towards the smooth signal Z nearest to its predictions H.

    The minimum of lambda1 sum_e w_e |(D Z)_e| + lambda2 / 2 sum_e w_e |(D Z)_e|^2 + |Z - H|^2 / 2
    over the undirected edges e, where (D Z)_uv = Z_u / sqrt(d_u) - Z_v / sqrt(d_v) and the first
    norm is l1 or l2. With gamma = 1 / (1 + lambda2), Y = gamma H + (1 - gamma) A Z and the dual
    U, of which no edge's norm exceeds lambda1, a step is
    U <- clip(U + D (Y - gamma D^T U) / (2 gamma)), Z <- Y - gamma D^T U.

    Reference: Liu et al. 2021, arXiv:2107.06996.

    Deviation: The paper has no edge weights; here an edge counts by its own in both penalties.

    Args:
        in_channels: Number of input features; it and those not named here are as for `GCN`.
        num_layers: Number of layers of the MLP.
        num_iterations: Steps, at least 0.
        lambda1: Weight of the norms, at least 0; 0 leaves APPNP.
        lambda2: Weight of their squares, at least 0.
        penalty: `l21` takes the Euclidean norm over channels, `l1` the sum of magnitudes.

    Examples:
        >>> import torch
        >>> from robust_diffusion import ElasticGNN
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> ElasticGNN(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        *widths: Any,
        num_iterations: Steps = 10,
        lambda1: NonNegative = 3.0,
        lambda2: NonNegative = 3.0,
        penalty: Literal["l1", "l21"] = "l21",
        **options: Any,
    ) -> None:
        super().__init__(*widths, **options)
        self.num_iterations = num_iterations
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.penalty = penalty

    def propagated(
        self, local: Float[Tensor, "n c"], graph: Graph, degree: Float[Tensor, " n"]
    ) -> Float[Tensor, "n c"]:
        """Logits after the steps towards the minimum."""
        weights, gamma = symmetric_weights(graph, degree), 1 / (1 + self.lambda2)
        scale = degree.clamp_min(1e-38).rsqrt()[:, None]

        def at_nodes(dual: Tensor) -> Tensor:
            return scale * segment_sum(graph.weight[:, None] * dual, graph)

        z = local
        # Of each direction of an edge, seen from where it points to.
        dual = local.new_zeros(graph.num_edges, local.size(1))
        for _ in range(self.num_iterations):
            y = gamma * local + (1 - gamma) * spmm(weights, z, graph)
            ahead = scale * (y - gamma * at_nodes(dual))
            dual = self._clipped(dual + _differences(ahead, graph) / (2 * gamma))
            z = y - gamma * at_nodes(dual)
        return z

    def _clipped(self, dual: Float[Tensor, "e c"]) -> Float[Tensor, "e c"]:
        if self.penalty == "l1":
            return dual.clamp(-self.lambda1, self.lambda1)
        squared = dual.square().sum(1, keepdim=True)
        outside = squared > self.lambda1**2
        return dual * torch.where(
            outside, self.lambda1 * torch.where(outside, squared, 1).rsqrt(), 1
        )


def _differences(z: Float[Tensor, "n c"], graph: Graph) -> Float[Tensor, "e c"]:
    return gather_dst(z, graph) - gather_src(z, graph)
