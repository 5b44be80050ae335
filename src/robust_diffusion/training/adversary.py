"""Interface between a training and its adversary."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torch import nn
from torch_geometric.data import Data

Attacker = Callable[[Data], Data]
"""Attacks the train view, or a batch of it, anew at each call; the clean nodes come first."""


@runtime_checkable
class Adversary(Protocol):
    """Attacks the graph that a model is trained on, while it is trained.

    The loss of training is (1 - s) clean + s attacked, with s the `attacked_share`. The attacker is
    handed the train view and nothing else, so that no validation or test node is ever seen.

    Early stopping and the best epoch go by clean validation nodes. Going by validation nodes that
    are attacked likewise would keep the epoch at which that attacker lags the most.

    Attributes:
        attacked_share: s, in (0, 1].
    """

    attacked_share: float

    def against(self, model: nn.Module) -> Attacker:
        """A new attacker of a model; its random numbers are drawn from torch's global generator."""
