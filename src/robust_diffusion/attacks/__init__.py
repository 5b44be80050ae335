"""Attacks: pure calls (victim, task, budget, generator) -> perturbed graph."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes, typed_imports

if TYPE_CHECKING:
    # isort: off
    from robust_diffusion.attacks.base import Attack as Attack, PerturbedGraph as PerturbedGraph
    from robust_diffusion.attacks.budget import SpentBudget as SpentBudget
    from robust_diffusion.attacks.base import spent_budget as spent_budget
    from robust_diffusion.attacks.budget import Budget as Budget
    from robust_diffusion.attacks.injection.adversary import (
        InjectionAdversary as InjectionAdversary,
    )
    from robust_diffusion.attacks.injection.auto import AutoInjection as AutoInjection
    from robust_diffusion.attacks.injection.base import RandomInjection as RandomInjection
    from robust_diffusion.attacks.injection.edges import AGIA as AGIA, MetaGIA as MetaGIA
    from robust_diffusion.attacks.injection.features import FGSM as FGSM, PGD as PGD, SPEIT as SPEIT
    from robust_diffusion.attacks.injection.gradient_injection import (
        GradientInjection as GradientInjection,
    )
    from robust_diffusion.attacks.injection.tdgia import TDGIA as TDGIA
    from robust_diffusion.attacks.modification.adversary import FlipAdversary as FlipAdversary
    from robust_diffusion.attacks.modification.auto import AutoModification as AutoModification
    from robust_diffusion.attacks.modification.given import GivenGraph as GivenGraph
    from robust_diffusion.attacks.modification.meta_grbcd import MetaGRBCD as MetaGRBCD
    from robust_diffusion.attacks.modification.metattack import Metattack as Metattack
    from robust_diffusion.attacks.modification.pgd_modification import (
        PGDModification as PGDModification,
    )
    from robust_diffusion.attacks.modification.prbcd import GRBCD as GRBCD
    from robust_diffusion.attacks.modification.prbcd import LRBCD as LRBCD, PRBCD as PRBCD
    from robust_diffusion.attacks.modification.random_flip import DICE as DICE
    from robust_diffusion.attacks.modification.random_flip import RandomFlip as RandomFlip
    from robust_diffusion.attacks.named import attack_names as attack_names
    from robust_diffusion.attacks.named import build_attack as build_attack
    from robust_diffusion.attacks.task import Task as Task
    from robust_diffusion.models.modules import seeded as seeded
    # isort: on

__all__ = list(typed_imports(__name__))

if not TYPE_CHECKING:  # type checkers would otherwise accept any name as an attribute
    __getattr__ = lazy_attributes(__name__)
