"""RUNG, whose aggregation does not trust edges between unlike nodes."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.checks import Positive, Probability, Steps
from robust_diffusion.models.mlp import PropagatingMLP
from robust_diffusion.operators import Graph, spmm, symmetric_weights
from robust_diffusion.operators.graph import gather_dst, gather_src, segment_sum

_SMALLEST = 0.01
"""Distance below which two nodes count as equally alike."""


class RUNG(PropagatingMLP):
    """MLP, then robust aggregation of its predictions by a minimax concave penalty.

    Z <- (s (W A) Z + (1 - s) H) / (s q + 1 - s), where A is the normalised adjacency, H the
    predictions of the MLP, W_uv = max(0, 1 / (2 y_uv) - 1 / (2 gamma)) of the distance y_uv of the
    predictions, each over the root of its node's degree, and q_u the mean of W over the edges of u.
    An edge that is longer than gamma has no weight, so that it biases nothing.

    Reference: Hou et al. 2024, arXiv:2311.14934.

    Deviation: The authors' code takes the root of the distance for y.

    Args:
        in_channels: Number of input features; it and those not named here are as for `GCN`.
        num_layers: Number of layers of the MLP.
        num_iterations: Steps of the aggregation, at least 0.
        gamma: Distance from which an edge has no weight, positive.
        smoothing: The neighbours' share s, in [0, 1).
        gradient: `detached` holds W fixed in the backward pass, as the authors do; `exact` goes
            through it, as the adaptive form does.

    Examples:
        >>> import torch
        >>> from robust_diffusion import RUNG
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> RUNG(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        *widths: Any,
        num_iterations: Steps = 10,
        gamma: Positive = 6.0,
        smoothing: Probability = 0.9,
        gradient: Literal["exact", "detached"] = "detached",
        **options: Any,
    ) -> None:
        super().__init__(*widths, **options)
        self.num_iterations = num_iterations
        self.gamma = gamma
        self.smoothing = smoothing
        self.gradient = gradient

    def make_adaptive(self) -> bool:
        """Let a gradient through the weights of the edges; see `HasAdaptiveForm`."""
        before, self.gradient = self.gradient, "exact"
        return before != self.gradient

    def propagated(
        self, local: Float[Tensor, "n c"], graph: Graph, degree: Float[Tensor, " n"]
    ) -> Float[Tensor, "n c"]:
        """Logits after the steps of the aggregation."""
        weights, s, z = symmetric_weights(graph, degree), self.smoothing, local
        for _ in range(self.num_iterations):
            trust = self._trust(z * degree.clamp_min(1e-38).rsqrt()[:, None], graph)
            mean = segment_sum(trust * graph.weight, graph) / degree.clamp_min(1e-38)
            aggregated = s * spmm(trust * weights, z, graph) + (1 - s) * local
            z = aggregated / (s * mean + 1 - s)[:, None]
        return z

    def _trust(self, z: Float[Tensor, "n c"], graph: Graph) -> Float[Tensor, " e"]:
        z = z if self.gradient == "exact" else z.detach()
        squared = (gather_dst(z, graph) - gather_src(z, graph)).square().sum(1)
        distance = squared.clamp_min(_SMALLEST**2).sqrt()
        trust = (0.5 / distance - 0.5 / self.gamma).clamp_min(0)
        return torch.where(graph.src == graph.dst, 0, trust)
