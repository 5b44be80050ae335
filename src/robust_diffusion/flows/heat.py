"""Heat flow."""

from jaxtyping import Float
from torch import Tensor

from robust_diffusion.flows.base import Flow
from robust_diffusion.operators import Graph, gather_dst, segment_sum, spmm


class Heat(Flow):
    """Heat diffusion with w = 1 on every edge: dZ/dt = (A - I) Z.

    A is the adjacency with self-loops, each row divided by its sum.

    Reference: eq. (mtx_heat) with w([u, v]) = 1, section "Diffusion Schemes", arXiv:2209.07754.

    Args:
        channels: Width d of the node features.
        t_end: End of the integration period [0, t_end].
    """

    def edge_weights(self, z: Float[Tensor, "n d"], graph: Graph) -> Float[Tensor, " e"]:
        """Edge weight over the sum of the weights arriving at the same node."""
        total = segment_sum(graph.weight, graph)
        return graph.weight / gather_dst(total, graph).clamp_min(1e-38)

    def forward(
        self, t: Float[Tensor, ""], z: Float[Tensor, "n d"], graph: Graph
    ) -> Float[Tensor, "n d"]:
        """Pull every node towards the mean of its neighbours."""
        return spmm(self.edge_weights(z, graph), z, graph) - z
