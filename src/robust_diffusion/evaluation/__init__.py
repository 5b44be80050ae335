"""Robustness of a model: threats, attacked graphs, flags, reports, and the zoo."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.evaluation.compare_reports import compare as compare
    from robust_diffusion.evaluation.evaluate_model import attack as attack
    from robust_diffusion.evaluation.evaluate_model import evaluate as evaluate
    from robust_diffusion.evaluation.report import AttackReport as AttackReport
    from robust_diffusion.evaluation.report import RobustnessReport as RobustnessReport
    from robust_diffusion.evaluation.single_target import attack_each as attack_each
    from robust_diffusion.evaluation.single_target import right_by_edges as right_by_edges
    from robust_diffusion.evaluation.threat import BlackBox as BlackBox
    from robust_diffusion.evaluation.threat import Poisoning as Poisoning
    from robust_diffusion.evaluation.threat import WhiteBox as WhiteBox
    from robust_diffusion.evaluation.zoo import load_model as load_model
    from robust_diffusion.evaluation.zoo import unit_test as unit_test

if not TYPE_CHECKING:  # type checkers would otherwise accept any name as an attribute
    __getattr__ = lazy_attributes(__name__)
