"""Attacks: pure calls (model, data, target nodes, budget, generator) -> perturbed graph."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.attacks.base import (
        Attack,
        PerturbedGraph,
        SpentBudget,
        spent_budget,
    )
    from robust_diffusion.attacks.budget import Budget
    from robust_diffusion.attacks.injection.adversary import InjectionAdversary
    from robust_diffusion.attacks.injection.auto import AutoInjection
    from robust_diffusion.attacks.injection.base import RandomInjection
    from robust_diffusion.attacks.injection.edges import AGIA, MetaGIA
    from robust_diffusion.attacks.injection.features import FGSM, PGD, SPEIT
    from robust_diffusion.attacks.injection.gradient_injection import GradientInjection
    from robust_diffusion.attacks.injection.tdgia import TDGIA
    from robust_diffusion.attacks.modification.auto import AutoModification
    from robust_diffusion.attacks.modification.given import GivenGraph
    from robust_diffusion.attacks.modification.meta_grbcd import MetaGRBCD
    from robust_diffusion.attacks.modification.metattack import Metattack
    from robust_diffusion.attacks.modification.pgd_modification import PGDModification
    from robust_diffusion.attacks.modification.prbcd import GRBCD, LGRBCD, LRBCD, PRBCD
    from robust_diffusion.attacks.modification.random_flip import DICE, RandomFlip
    from robust_diffusion.attacks.randomness import seeded

__all__ = [
    "AGIA",
    "DICE",
    "FGSM",
    "GRBCD",
    "LGRBCD",
    "LRBCD",
    "PGD",
    "PRBCD",
    "SPEIT",
    "TDGIA",
    "Attack",
    "AutoInjection",
    "AutoModification",
    "Budget",
    "GivenGraph",
    "GradientInjection",
    "InjectionAdversary",
    "MetaGIA",
    "MetaGRBCD",
    "Metattack",
    "PGDModification",
    "PerturbedGraph",
    "RandomFlip",
    "RandomInjection",
    "SpentBudget",
    "seeded",
    "spent_budget",
]

if not TYPE_CHECKING:  # where a checker would take any name for one of the package
    __getattr__ = lazy_attributes(__name__)
