"""Robustness of a model: threats, attacked graphs, flags, reports, and the zoo."""

from typing import TYPE_CHECKING, Any

from robust_diffusion.robustness.evaluate_model import attack, evaluate
from robust_diffusion.robustness.report import AttackReport, RobustnessReport
from robust_diffusion.robustness.threat import WhiteBox

if TYPE_CHECKING:
    from robust_diffusion.robustness.black_box import BlackBox, Poisoning

__all__ = [
    "AttackReport",
    "BlackBox",
    "Poisoning",
    "RobustnessReport",
    "WhiteBox",
    "attack",
    "evaluate",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import the models that train, which bring Lightning along, when first asked for."""
        if name not in ("BlackBox", "Poisoning"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from robust_diffusion.robustness import black_box

        return getattr(black_box, name)
