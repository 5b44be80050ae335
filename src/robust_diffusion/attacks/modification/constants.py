"""Constants of `auto_modification`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FlipConstants:
    """Constants of `AutoModification`, each with its meaning and what it was chosen on.

    "Unstudied" means that no comparison of values is recorded.
    """

    tournament_passes: int = 2  # most passes of the tournament, per step; unstudied
    patience: float = 1 / 3  # passes without a gain that end an exchange, per step; unstudied
    feature_trial: float = 1 / 8  # share of the steps that parts on features take first; unstudied
    feature_parts: int = 2  # parts on features that continue after that; unstudied
    # Weight of a target's tanh margin, relative to 1 for a misclassified target; unstudied.
    margin_weight: float = 0.3
    proposed: int = 200  # flips proposed to a pass, which tries those that lie apart; unstudied
    block_size: int = 10_000  # pairs drawn for the gradient with respect to edges; unstudied
    candidates: int = 32  # nodes drawn for the other end of a new edge; unstudied
    removed_share: float = 1 / 4  # share of the random proposals that remove an edge; unstudied


FLIPS = FlipConstants()
