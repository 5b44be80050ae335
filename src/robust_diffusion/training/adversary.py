"""What a training asks of its adversary."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torch import nn
from torch_geometric.data import Data

Attacker = Callable[[Data], Data]
"""Attacks one view of a graph, anew at each call; scored nodes come first and keep their order."""


@runtime_checkable
class Adversary(Protocol):
    """Attacks the graph that a model is trained on, while it is trained.

    Training and validation each have an attacker of their own, which is handed their own view and
    nothing else, so that no test node, label or edge is ever seen. Both losses, and the accuracy by
    which the best epoch is kept, are mixed: (1 - s) clean + s attacked, with s the
    `attacked_share`. By clean validation nodes alone the best epoch would be one of before the
    model is robust.

    Attributes:
        attacked_share: s, in (0, 1].
    """

    attacked_share: float

    def against(self, model: nn.Module) -> Attacker:
        """A new attacker of a model; its random numbers are drawn from torch's global generator."""
