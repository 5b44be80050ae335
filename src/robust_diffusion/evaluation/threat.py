"""Threat models: which model the attacker gets to see."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import nn

from robust_diffusion.data import GraphDataModule
from robust_diffusion.training import Fit

log = logging.getLogger(__name__)


@runtime_checkable
class ThreatModel(Protocol):
    """Decides which model an attack runs on."""

    name: str

    def attacked_model(
        self, victim: nn.Module, datamodule: GraphDataModule, directory: Path
    ) -> nn.Module:
        """Return a trained model, in eval mode, for the attacks of one cell."""


class BlackBox:
    """The attacker knows neither the victim nor its defence, and attacks a surrogate of its own.

    Reference: section "Attack Setup", arXiv:2209.07754; GRB, arXiv:2111.04314.

    Args:
        surrogate: Builds the surrogate from the numbers of features and classes.
        fit: Trains it.
    """

    name = "black_box"

    def __init__(self, surrogate: Callable[..., nn.Module], fit: Fit) -> None:
        self._surrogate = surrogate
        self._fit = fit

    def attacked_model(
        self, victim: nn.Module, datamodule: GraphDataModule, directory: Path
    ) -> nn.Module:
        """Train the surrogate; the victim is not looked at."""
        surrogate = self._surrogate(
            in_channels=datamodule.num_features, out_channels=datamodule.num_classes
        )
        return self._fit(
            surrogate, datamodule, directory=directory, description="surrogate"
        ).module.model
