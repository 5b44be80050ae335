"""APPNP."""

from collections.abc import Iterator
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.checks import Probability, Share, Steps
from robust_diffusion.models.mlp import PropagatingMLP
from robust_diffusion.models.stack import HiddenStep, check_hidden_layers
from robust_diffusion.operators import Graph, graph_with_degree, spmm, symmetric_weights

_Variant = Literal["original", "grb"]
"""`original`: the published model. `grb`: GRB's code, where the walk restarts at its own state,
logits pass ReLU and dropout before it, and dropped edges stay dropped, without scaling."""


class APPNP(PropagatingMLP):
    """MLP, then personalised PageRank of its predictions: Z <- (1 - alpha) A Z + alpha H.

    With `variant="grb"` alpha Z takes the place of alpha H, which starts at dropout(ReLU(H)): no
    restart, but a lazy walk.

    Reference: Gasteiger et al. 2019, arXiv:1810.05997; as GRB configures it.

    Args:
        in_channels: Number of input features; it and those not named here are as for `GCN`.
        num_layers: Number of layers of the MLP.
        num_iterations: Propagation steps K, at least 0.
        teleport: Probability alpha of a restart at the node, in [0, 1].
        edge_dropout: Probability of dropping an edge in a training step of propagation, in [0, 1).
        variant: The published one, or GRB's; see `_Variant`.

    Examples:
        >>> import torch
        >>> from robust_diffusion import APPNP
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> APPNP(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        *widths: Any,
        num_iterations: Steps = 3,
        teleport: Share = 0.01,
        edge_dropout: Probability = 0.1,
        variant: _Variant = "original",
        **options: Any,
    ) -> None:
        super().__init__(*widths, **options)
        self.num_iterations = num_iterations
        self.teleport = teleport
        self.edge_dropout = edge_dropout
        self.variant = variant

    def propagated(
        self, local: Float[Tensor, "n c"], graph: Graph, degree: Float[Tensor, " n"]
    ) -> Float[Tensor, "n c"]:
        """Logits after the steps of the walk."""
        weights, z = symmetric_weights(graph, degree), local
        if self.variant == "grb":
            z = self.dropout(self.activation(z))
        for step_weights in self._edges_kept(weights):
            z = self._propagated(z, local, step_weights, graph)
        return z

    def hidden_step(self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]) -> HiddenStep:
        """One step of the propagation, which has no layers, on features of hidden width."""
        check_hidden_layers(len(self.layers))
        graph, degree = graph_with_degree(x, edge_index)
        weights = symmetric_weights(graph, degree)
        state = self.activation(self.layers[0](self.norms[0](x)))
        return HiddenStep(
            "aggregation", state.size(1), lambda: self._propagated(state, state, weights, graph)
        )

    def _edges_kept(self, weights: Tensor) -> Iterator[Tensor]:
        """The weights of each step of the propagation."""
        for _ in range(self.num_iterations):
            if self.variant == "original":
                yield F.dropout(weights, self.edge_dropout, training=self.training)
                continue
            if self.training:
                weights = weights * (torch.rand_like(weights) >= self.edge_dropout)
            yield weights

    def _propagated(self, z: Tensor, local: Tensor, weights: Tensor, graph: Graph) -> Tensor:
        restart = local if self.variant == "original" else z
        return (1 - self.teleport) * spmm(weights, z, graph) + self.teleport * restart
