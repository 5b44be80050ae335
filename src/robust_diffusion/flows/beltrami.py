"""Beltrami flow."""

from robust_diffusion.flows.base import PowerModulated


class Beltrami(PowerModulated):
    r"""Beltrami diffusion: B(u, v) = softmax_v(1 / g_u^2 + 1 / (g_u g_v)).

    .. math:: \partial Z / \partial t = (A(Z) \odot B(Z) - \Psi(Z)) Z

    1 / g_u^2 is equal for all edges arriving at u, so it cancels in the softmax.

    Reference: eq. (belt) and (mtx_beltrami), arXiv:2209.07754. The node-wise eq. (neural_belt)
    prints phi(u) - phi(v); diffusion, and the matrix form, need phi(v) - phi(u). For the arguments
    see `ModulatedFlow`.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import Beltrami
        >>> GraphPDE(5, out_channels=3, flow=Beltrami).layers[0].flow.exponents
        (-1.0, -1.0)
    """

    exponents = (-1.0, -1.0)
