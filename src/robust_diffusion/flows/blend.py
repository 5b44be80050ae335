"""BLEND flow."""

import torch
from torch import nn

from robust_diffusion.checks import Count, NonNegative, Positive, Width, validated
from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.base import State
from robust_diffusion.flows.grand import Grand
from robust_diffusion.operators import EdgeValues, Graph, NodeSignal, return_probabilities


@validated("flow")
class Blend(Grand):
    r"""BLEND: GRAND on features concatenated with positions.

    .. math:: Z = [X, U], \quad \partial Z / \partial t = rate (A(Z) - I) Z

    X(0) are the features, and X is the output. U(0) are the return probabilities of random walks of
    1 to k steps, under a learned linear map as in the authors' code. The probabilities decrease
    with the number of steps, so each needs a separate scale to count next to the features under
    attention of bounded norm.

    Reference: arXiv:2110.09443; the positions, Dwivedi et al. 2021, arXiv:2110.07875.

    Args:
        channels: Width d of the node features; see `Grand` for all arguments not listed.
        positions: k, the longest walk and the number of channels of U, at least 1.

    Deviation:
        The authors compute DeepWalk or hyperbolic embeddings before training, which injected nodes
        do not have. Return probabilities are a function of the attacked graph, differentiable in
        its edge weights, so that an attacker can differentiate them. Computing them takes O(k n e)
        per edge list; see `operators.return_probabilities`.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import Blend
        >>> x, edge_index = torch.rand(3, 5), torch.tensor([[0, 1], [1, 0]])
        >>> flow = lambda width: Blend(width, positions=4)
        >>> GraphPDE(5, 4, out_channels=2, flow=flow)(x, edge_index).shape
        torch.Size([3, 2])
    """

    def __init__(
        self,
        channels: Width,
        *,
        positions: Width = 8,
        rate: Positive = 1.0,
        heads: Count = 4,
        attention_channels: Width = 64,
        lipschitz: bool = True,
        attention: AttentionKind = "trained",
        t_end: NonNegative = 1.0,
    ) -> None:
        super().__init__(
            channels + positions,  # attention uses the whole state
            rate=rate,
            heads=heads,
            attention_channels=attention_channels,
            lipschitz=lipschitz,
            attention=attention,
            t_end=t_end,
        )
        self.channels = channels
        self.positions = positions
        self.encode = nn.Linear(positions, positions)

    def initial_state(self, z: NodeSignal, graph: Graph) -> State:
        """Return [X, U] from the features and the graph."""
        positions = self.encode(return_probabilities(graph, self.positions))
        return torch.cat([z, positions], 1)

    def edge_weights(self, z: State, graph: Graph) -> EdgeValues:
        """Return the attention A([X, U]) of a state; U(0) completes a state of features only."""
        if z.size(1) == self.channels:
            z = self.initial_state(z, graph)
        return self.attention(z, graph)  # type: ignore[no-any-return]

    similarity = edge_weights
