"""Training of any model by Lightning, victim and surrogate alike."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.training.fit import Fit as Fit
    from robust_diffusion.training.fit import FitResult as FitResult
    from robust_diffusion.training.fit import quiet_lightning as quiet_lightning
    from robust_diffusion.training.module import Adversary as Adversary
    from robust_diffusion.training.module import NodeClassification as NodeClassification

if not TYPE_CHECKING:  # type checkers would otherwise accept any name as an attribute
    __getattr__ = lazy_attributes(__name__)
