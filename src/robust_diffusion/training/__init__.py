"""Training of any model by Lightning, victim and surrogate alike."""

from robust_diffusion.training.fit import Fit as Fit
from robust_diffusion.training.fit import FitResult as FitResult
from robust_diffusion.training.fit import quiet_lightning as quiet_lightning
from robust_diffusion.training.module import Adversary as Adversary
from robust_diffusion.training.module import NodeClassification as NodeClassification
