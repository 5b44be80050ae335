"""Diffusion with a uniform edge modulation, the control of the curvature flows."""

from jaxtyping import Float
from torch import Tensor

from robust_diffusion.flows.base import ModulatedFlow
from robust_diffusion.operators import Graph


class UniformModulation(ModulatedFlow):
    r"""Attention over the degree: B(u, v) = 1 / deg(u), whatever the curvature.

    .. math:: \partial Z / \partial t = (A(Z) \odot B - \Psi(Z)) Z

    deg(u) is the sum of the weights arriving at u, self-loop included. This is Beltrami or mean
    curvature with equal scores; what they do beyond it is due to the gradient norm. Arguments as
    `ModulatedFlow`, of which those of the gradient norm change nothing.

    Examples:
        >>> import torch
        >>> from robust_diffusion import UniformModulation
        >>> from robust_diffusion.operators import Graph
        >>> graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
        >>> UniformModulation(4)(torch.tensor(0.0), torch.rand(3, 4), graph).shape
        torch.Size([3, 4])
    """

    def modulation_scores(
        self, inverse_norm: Float[Tensor, " n"], graph: Graph
    ) -> Float[Tensor, " e"]:
        """1 on every edge."""
        return inverse_norm.new_ones(graph.num_edges)

    @property
    def modulation_exponents(self) -> tuple[float, float]:
        """Those of the scores above."""
        return 0.0, 0.0
