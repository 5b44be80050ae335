"""Choices that an injection attack by gradient is put together from."""

from dataclasses import dataclass

from robust_diffusion.attacks.climb import Steps
from robust_diffusion.attacks.injection.sharing import SharingName
from robust_diffusion.attacks.injection.starts import StartName


@dataclass(frozen=True, kw_only=True)
class Recipe(Steps):
    """The parts that an injection attack by gradient is put together from.

    Args:
        edges: How the new nodes share out their edges; see `sharing`.
        start: Features that they start from; see `starts`. All others are those of `Steps`.
    """

    edges: SharingName = "classes"
    start: StartName = "real"
