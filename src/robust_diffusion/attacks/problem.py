"""Old name of `base`, where the problem of an attack lies now."""

from robust_diffusion.attacks.base import *  # noqa: F403
