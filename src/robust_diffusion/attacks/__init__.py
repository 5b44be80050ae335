"""Attacks: pure calls (model, data, target nodes, budget, generator) -> perturbed graph."""

from robust_diffusion.attacks.base import Attack, PerturbedGraph, SpentBudget
from robust_diffusion.attacks.budget import InjectionBudget
from robust_diffusion.attacks.injection.speit import SPEIT
from robust_diffusion.attacks.injection.tdgia import TDGIA

__all__ = ["SPEIT", "TDGIA", "Attack", "InjectionBudget", "PerturbedGraph", "SpentBudget"]
