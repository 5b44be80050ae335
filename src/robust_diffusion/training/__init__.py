"""Training of any model by Lightning, victim and surrogate alike."""

from robust_diffusion.training.fit import Fit, FitResult
from robust_diffusion.training.lightning import quiet_lightning
from robust_diffusion.training.module import Adversary, NodeClassification

__all__ = ["Adversary", "Fit", "FitResult", "NodeClassification", "quiet_lightning"]
