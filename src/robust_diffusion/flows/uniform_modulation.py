"""Diffusion with a uniform edge modulation, the control for the curvature flows."""

from robust_diffusion.flows.base import PowerModulated


class UniformModulation(PowerModulated):
    r"""Attention over the degree: B(u, v) = 1 / deg(u), regardless of the curvature.

    .. math:: \partial Z / \partial t = (A(Z) \odot B - \Psi(Z)) Z

    deg(u) is the sum of the weights arriving at u, self-loop included. This is Beltrami or mean
    curvature with equal scores; any difference from these is due to the gradient norm. For the
    arguments see `ModulatedFlow`; those of the gradient norm have no effect.

    Reference: of this project; the control of eq. (belt), arXiv:2209.07754.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import UniformModulation
        >>> GraphPDE(5, out_channels=3, flow=UniformModulation).layers[0].flow.exponents
        (0.0, 0.0)
    """

    exponents = (0.0, 0.0)
