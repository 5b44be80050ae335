"""Flows by name."""

from robust_diffusion.flows.acmp import ACMP
from robust_diffusion.flows.base import Flow
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
from robust_diffusion.flows.p_laplacian import PLaplacian
from robust_diffusion.flows.uniform_modulation import UniformModulation

FLOWS: dict[str, type[Flow]] = {
    "acmp": ACMP,
    "beltrami": Beltrami,
    "blend": Blend,
    "frond": Frond,
    "grand": Grand,
    "grand_pp": GrandPP,
    "graphcon": GraphCON,
    "gread": GREAD,
    "hang": Hang,
    "hang_quad": HangQuad,
    "heat": Heat,
    "heat_plus": HeatPlus,
    "learned": Learned,
    "mean_curvature": MeanCurvature,
    "p_laplacian": PLaplacian,
    "uniform_modulation": UniformModulation,
}
"""Flows by the name of their option in `conf/flow/`."""
