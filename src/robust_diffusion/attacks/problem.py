"""Former place of `Problem` and its gradient, kept for one release."""

import warnings
from typing import Any

from robust_diffusion.attacks import base


def __getattr__(name: str) -> Any:
    value = getattr(base, name)
    message = "robust_diffusion.attacks.problem is now robust_diffusion.attacks.base"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return value
