"""Former name of `robust_diffusion.evaluation`, kept for one release."""

import warnings
from typing import Any

from robust_diffusion import evaluation


def __getattr__(name: str) -> Any:
    if name == "__path__":  # Python would use it to load a second copy of each module
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(evaluation, name)
    message = "robust_diffusion.robustness is now robust_diffusion.evaluation"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return value
