"""Right-hand sides dZ/dt = f(t, Z, graph) of the graph neural PDEs, one file each."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.flows.acmp import ACMP
    from robust_diffusion.flows.base import Flow, count_evaluations
    from robust_diffusion.flows.beltrami import Beltrami
    from robust_diffusion.flows.blend import Blend
    from robust_diffusion.flows.frond import Frond
    from robust_diffusion.flows.grand import Grand
    from robust_diffusion.flows.grand_pp import GrandPP
    from robust_diffusion.flows.graphcon import GraphCON
    from robust_diffusion.flows.gread import GREAD
    from robust_diffusion.flows.hang import Hang
    from robust_diffusion.flows.hang_quad import HangQuad
    from robust_diffusion.flows.heat import Heat
    from robust_diffusion.flows.heat_plus import HeatPlus
    from robust_diffusion.flows.learned import Learned
    from robust_diffusion.flows.mean_curvature import MeanCurvature
    from robust_diffusion.flows.named import FLOWS
    from robust_diffusion.flows.p_laplacian import PLaplacian
    from robust_diffusion.flows.uniform_modulation import UniformModulation

__all__ = [
    "ACMP",
    "FLOWS",
    "GREAD",
    "Beltrami",
    "Blend",
    "Flow",
    "Frond",
    "Grand",
    "GrandPP",
    "GraphCON",
    "Hang",
    "HangQuad",
    "Heat",
    "HeatPlus",
    "Learned",
    "MeanCurvature",
    "PLaplacian",
    "UniformModulation",
    "count_evaluations",
]

if not TYPE_CHECKING:  # where a checker would take any name for one of the package
    __getattr__ = lazy_attributes(__name__)
