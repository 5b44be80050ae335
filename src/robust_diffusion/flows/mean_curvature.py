"""Mean curvature flow."""

from jaxtyping import Float
from torch import Tensor

from robust_diffusion.flows.base import ModulatedFlow
from robust_diffusion.operators import Graph, gather_src


class MeanCurvature(ModulatedFlow):
    r"""Mean curvature diffusion: B(u, v) = softmax_v(1 / g_u + 1 / g_v).

    .. math:: \partial Z / \partial t = (A(Z) \odot B(Z) - \Psi(Z)) Z

    1 / g_u is equal for all edges arriving at u, so the softmax does not see it.

    Reference: eq. (curv) and (mtx_mean), arXiv:2209.07754. Arguments as `ModulatedFlow`.

    Examples:
        >>> import torch
        >>> from robust_diffusion import MeanCurvature
        >>> from robust_diffusion.operators import Graph
        >>> graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
        >>> MeanCurvature(4)(torch.tensor(0.0), torch.rand(3, 4), graph).shape
        torch.Size([3, 4])
    """

    def modulation_scores(
        self, inverse_norm: Float[Tensor, " n"], graph: Graph
    ) -> Float[Tensor, " e"]:
        """1 / g_v."""
        return gather_src(inverse_norm, graph)

    @property
    def modulation_exponents(self) -> tuple[float, float]:
        """Those of the scores above."""
        return 0.0, -1.0
