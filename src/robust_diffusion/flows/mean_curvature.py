"""Mean curvature flow."""

from robust_diffusion.flows.base import PowerModulated


class MeanCurvature(PowerModulated):
    r"""Mean curvature diffusion: B(u, v) = softmax_v(1 / g_u + 1 / g_v).

    .. math:: \partial Z / \partial t = (A(Z) \odot B(Z) - \Psi(Z)) Z

    1 / g_u is equal for all edges arriving at u, so it cancels in the softmax.

    Reference: eq. (curv) and (mtx_mean), arXiv:2209.07754. For the arguments see `ModulatedFlow`.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import MeanCurvature
        >>> GraphPDE(5, out_channels=3, flow=MeanCurvature).layers[0].flow.exponents
        (0.0, -1.0)
    """

    exponents = (0.0, -1.0)
