"""Former name of `robust_diffusion.evaluation`, kept for one release."""

import warnings
from typing import Any

from robust_diffusion import evaluation


def __getattr__(name: str) -> Any:
    value = getattr(evaluation, name)
    message = "robust_diffusion.robustness is now robust_diffusion.evaluation"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return value
