"""Robustness of a model: threats, attacked graphs, flags, reports, and the zoo."""

from robust_diffusion.robustness.evaluate_model import attack, evaluate
from robust_diffusion.robustness.report import AttackReport, RobustnessReport
from robust_diffusion.robustness.threat import BlackBox, Poisoning, WhiteBox

__all__ = [
    "AttackReport",
    "BlackBox",
    "Poisoning",
    "RobustnessReport",
    "WhiteBox",
    "attack",
    "evaluate",
]
