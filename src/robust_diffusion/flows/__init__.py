"""Right-hand sides dZ/dt = f(t, Z, graph) of the graph neural PDEs, one file each."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.flows.acmp import ACMP as ACMP
    from robust_diffusion.flows.base import Flow as Flow
    from robust_diffusion.flows.base import count_evaluations as count_evaluations
    from robust_diffusion.flows.beltrami import Beltrami as Beltrami
    from robust_diffusion.flows.blend import Blend as Blend
    from robust_diffusion.flows.dragon import Dragon as Dragon
    from robust_diffusion.flows.frond import Frond as Frond
    from robust_diffusion.flows.grand import Grand as Grand
    from robust_diffusion.flows.grand_pp import GrandPP as GrandPP
    from robust_diffusion.flows.graphcon import GraphCON as GraphCON
    from robust_diffusion.flows.gread import GREAD as GREAD
    from robust_diffusion.flows.hang import Hang as Hang
    from robust_diffusion.flows.hang_quad import HangQuad as HangQuad
    from robust_diffusion.flows.heat import Heat as Heat
    from robust_diffusion.flows.heat_plus import HeatPlus as HeatPlus
    from robust_diffusion.flows.learned import Learned as Learned
    from robust_diffusion.flows.mean_curvature import MeanCurvature as MeanCurvature
    from robust_diffusion.flows.named import FLOWS as FLOWS
    from robust_diffusion.flows.p_laplacian import PLaplacian as PLaplacian
    from robust_diffusion.flows.uniform_modulation import UniformModulation as UniformModulation

if not TYPE_CHECKING:  # type checkers would otherwise accept any name as an attribute
    __getattr__ = lazy_attributes(__name__)
