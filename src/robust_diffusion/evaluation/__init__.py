"""Robustness of a model: threats, attacked graphs, flags, reports, and the zoo."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.evaluation.evaluate_model import attack, evaluate
    from robust_diffusion.evaluation.report import AttackReport, RobustnessReport
    from robust_diffusion.evaluation.threat import BlackBox, Poisoning, WhiteBox

__all__ = [
    "AttackReport",
    "BlackBox",
    "Poisoning",
    "RobustnessReport",
    "WhiteBox",
    "attack",
    "evaluate",
]

if not TYPE_CHECKING:  # type checkers would otherwise accept any name as an attribute
    __getattr__ = lazy_attributes(__name__)
