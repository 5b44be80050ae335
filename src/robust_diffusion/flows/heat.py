"""Heat flow."""

from dataclasses import replace
from typing import Literal

from robust_diffusion.checks import NonNegative, Width, validated
from robust_diffusion.flows.attention import ResampledAttention
from robust_diffusion.flows.base import Flow, Time
from robust_diffusion.operators import EdgeValues, Graph, NodeSignal, gather_dst, row_sum, spmm

HeatWeights = Literal["uniform", "frozen_attention"]


@validated("flow")
class Heat(Flow):
    """Heat diffusion along weights that do not change with time: dZ/dt = (A - I) Z.

    `weights="uniform"` is the paper's equation: A is the adjacency with self-loops, w = 1 on every
    edge, each row divided by its sum. `weights="frozen_attention"` is the authors' public code,
    which computes that A, then overwrites it by the resampled attention of the initial state.

    Reference: eq. (mtx_heat) with w([u, v]) = 1, section "Diffusion Schemes", arXiv:2209.07754.

    Args:
        channels: Width d of the node features; see `Flow` for all arguments not listed.
        weights: `uniform` or `frozen_attention`, the latter with 4 heads of 16 and spectral
            normalisation, as in the authors' code.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import Heat
        >>> GraphPDE(5, out_channels=3, flow=Heat).layers[0].flow.t_end
        1.0
    """

    def __init__(
        self,
        channels: Width,
        *,
        weights: HeatWeights = "uniform",
        t_end: NonNegative = 1.0,
    ) -> None:
        super().__init__(channels, t_end=t_end)
        self.attention = ResampledAttention(channels) if weights == "frozen_attention" else None

    def prepare(self, z: NodeSignal, graph: Graph) -> Graph:
        """Store the attention of the initial state in the graph's weights, if there is any."""
        return graph if self.attention is None else replace(graph, weight=self.attention(z, graph))

    def edge_weights(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Return the edge weights divided by their sum over edges arriving at the same node."""
        total = row_sum(graph.full_weight, graph)
        return graph.full_weight / gather_dst(total, graph).clamp_min(1e-38)

    def forward(self, t: Time, z: NodeSignal, graph: Graph) -> NodeSignal:
        """Pull every node towards the weighted mean of its neighbours."""
        return spmm(self.edge_weights(z, graph), z, graph) - z
