"""Right-hand sides dZ/dt = f(t, Z, graph) of the graph neural PDEs, one file each."""

from robust_diffusion.flows.base import Flow
from robust_diffusion.flows.beltrami import Beltrami
from robust_diffusion.flows.grand import Grand
from robust_diffusion.flows.heat import Heat
from robust_diffusion.flows.heat_plus import HeatPlus
from robust_diffusion.flows.mean_curvature import MeanCurvature
from robust_diffusion.flows.p_laplacian import PLaplacian
from robust_diffusion.flows.uniform_modulation import UniformModulation

FLOWS: dict[str, type[Flow]] = {
    "beltrami": Beltrami,
    "grand": Grand,
    "heat": Heat,
    "heat_plus": HeatPlus,
    "mean_curvature": MeanCurvature,
    "p_laplacian": PLaplacian,
    "uniform_modulation": UniformModulation,
}
"""Flows by the name of their option in `conf/flow/`."""

__all__ = [
    "FLOWS",
    "Beltrami",
    "Flow",
    "Grand",
    "Heat",
    "HeatPlus",
    "MeanCurvature",
    "PLaplacian",
    "UniformModulation",
]
