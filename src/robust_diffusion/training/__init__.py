"""Training of any model by Lightning, victim and surrogate alike."""

from robust_diffusion.training.adversary import Adversary
from robust_diffusion.training.fit import Fit, FitResult
from robust_diffusion.training.interrupt import ctrl_c_passes
from robust_diffusion.training.module import NodeClassification
from robust_diffusion.training.warnings import quiet_lightning

__all__ = [
    "Adversary",
    "Fit",
    "FitResult",
    "NodeClassification",
    "ctrl_c_passes",
    "quiet_lightning",
]
