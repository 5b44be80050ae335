"""GraphCON flow."""

import torch
from torch import nn

from robust_diffusion.checks import NonNegative, Width, validated
from robust_diffusion.flows.base import Flow, State, Time, is_number
from robust_diffusion.operators import EdgeValues, Graph, NodeSignal, spmm, symmetric_weights


@validated("flow")
class GraphCON(Flow):
    r"""Damped oscillators, one per feature of each node, coupled along the edges.

    .. math:: X'' = \mathrm{relu}(\hat{A} X W) - \gamma X - \alpha X'

    As a system of first order in the state (X, Y): X' = Y, Y' = relu(A X W) - gamma X - alpha Y,
    with X(0) = Y(0) = Z. A is D^{-1/2} (A + I) D^{-1/2}, the coupling of GraphCON-GCN, and W is
    learned. X is the output.

    Reference: arXiv:2202.02296.

    Args:
        channels: Width d of the node features; see `Flow` for all arguments not listed.
        frequency: gamma, the square of the natural frequency, at least 0.
        damping: alpha, at least 0.

    Deviation:
        The authors' code uses symplectic Euler steps, with residual terms and dropout between them;
        here, `solver` integrates the equation.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import GraphCON
        >>> GraphPDE(5, out_channels=3, flow=GraphCON).layers[0].flow.damping
        1.0
    """

    def __init__(
        self,
        channels: Width,
        *,
        frequency: NonNegative = 1.0,
        damping: NonNegative = 1.0,
        t_end: NonNegative = 1.0,
    ) -> None:
        super().__init__(channels, t_end=t_end)
        self.frequency = frequency
        self.damping = damping
        self.linear = nn.Linear(channels, channels, bias=False)

    def edge_weights(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Return the edge weights divided by the root of the degrees at both ends."""
        return symmetric_weights(graph)

    def initial_state(self, z: NodeSignal, graph: Graph) -> State:
        """Return (X, Y), both equal to the features."""
        return torch.cat([z, z], 1)

    def forward(self, t: Time, z: State, graph: Graph) -> State:
        """Compute velocity and acceleration."""
        x, y = z.chunk(2, 1)
        coupling = torch.relu(spmm(self.edge_weights(x, graph), self.linear(x), graph))
        spring = x if is_number(self.frequency, 1) else self.frequency * x
        damper = y if is_number(self.damping, 1) else self.damping * y
        return torch.cat([y, coupling - spring - damper], 1)
