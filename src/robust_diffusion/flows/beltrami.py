"""Beltrami flow."""

from jaxtyping import Float
from torch import Tensor

from robust_diffusion.flows.base import ModulatedFlow
from robust_diffusion.operators import Graph, gather_dst, gather_src


class Beltrami(ModulatedFlow):
    r"""Beltrami diffusion: B(u, v) = softmax_v(1 / g_u^2 + 1 / (g_u g_v)).

    .. math:: \partial Z / \partial t = (A(Z) \odot B(Z) - \Psi(Z)) Z

    1 / g_u^2 is equal for all edges arriving at u, so the softmax does not see it.

    Reference: eq. (belt) and (mtx_beltrami), arXiv:2209.07754. The node-wise eq. (neural_belt)
    prints phi(u) - phi(v); diffusion, and the matrix form, need phi(v) - phi(u). Arguments as
    `ModulatedFlow`.

    Examples:
        >>> import torch
        >>> from robust_diffusion import Beltrami
        >>> from robust_diffusion.operators import Graph
        >>> graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
        >>> Beltrami(4)(torch.tensor(0.0), torch.rand(3, 4), graph).shape
        torch.Size([3, 4])
    """

    def modulation_scores(
        self, inverse_norm: Float[Tensor, " n"], graph: Graph
    ) -> Float[Tensor, " e"]:
        """1 / (g_u g_v)."""
        return gather_dst(inverse_norm, graph) * gather_src(inverse_norm, graph)

    @property
    def modulation_exponents(self) -> tuple[float, float]:
        """Those of the scores above."""
        return -1.0, -1.0
