"""Threat models: the model that the attacker gets to see, and what of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from torch import nn

from robust_diffusion.checks import validated
from robust_diffusion.models.adaptive import adaptive_form
from robust_diffusion.models.guard import Gradient
from robust_diffusion.models.variants import with_adjoint, with_gradient

Labels = Literal["predicted", "true"]

GivenLabels = Literal["predicted", "true", True]
"""YAML, and so threat.labels=true on the command line, reads the word as a truth value."""

Seeding = Literal["name", "cell"]


@dataclass(frozen=True)
class TrainedModel:
    """A model with its best weights, in eval mode, on the CPU."""

    model: nn.Module
    epochs: int
    seconds: float  # wall time of the training, whenever that was
    val_accuracy: float  # the best, in 0..1
    state: str  # hash of weights and buffers
    path: Path  # of the entry in the store
    reused: bool
    best_epoch: int | None = None  # the one whose weights these are; `None` of an older entry


TrainSurrogate = Callable[[str, Callable[..., nn.Module], Any, Seeding], TrainedModel]
"""Trains a surrogate of a name, by what builds it, a `Fit`, and its seeding."""


@dataclass(frozen=True)
class AttackedModel:
    """A model as the attacker sees it."""

    model: nn.Module  # in eval mode
    state: str  # hash of its weights and buffers


@runtime_checkable
class ThreatModel(Protocol):
    """Decides which models a run's attacks are made on.

    Every one but `Poisoning` is evasion: the victim is trained on the clean graph, and the target
    nodes are the test nodes.
    """

    name: str
    labels: Labels

    def check(self, model: nn.Module) -> None:
        """Refuse, by a `ConfigError`, an untrained victim that the attacker could not see."""

    def attacked_models(
        self, victim: TrainedModel, train: TrainSurrogate
    ) -> dict[str, AttackedModel]:
        """The models that a run's attacks are made on, by name; `train` makes surrogates."""


@validated("threat")
class WhiteBox:
    """The attacker knows the victim and differentiates through it, PDE solver included.

    Args:
        name: `white_box`, or `adaptive` where the defence is made differentiable first.
        labels: See `BlackBox`; predictions are those of the model itself.
        adjoint: Differentiate the PDE by the adjoint equation, or directly; `None` as the victim
            is configured.
        gradient: What the attacker differentiates a defender's re-weighting or truncation by;
            `None` as the victim is configured; see `models.variants.with_gradient`. `adaptive`
            for the form that each model declares; see `models.adaptive.adaptive_form`.

    Examples:
        >>> from robust_diffusion import GNNGuard, WhiteBox
        >>> seen = WhiteBox(gradient="adaptive").seen(GNNGuard(5, 8, 3))
        >>> seen.guard.gradient
        'straight_through'
    """

    def __init__(
        self,
        *,
        name: str = "white_box",
        labels: GivenLabels = "predicted",
        adjoint: bool | None = None,
        gradient: Gradient | Literal["adaptive"] | None = None,
    ) -> None:
        self.name = name
        self.labels = named_labels(labels)
        self._adjoint = adjoint
        self._gradient = gradient

    def check(self, model: nn.Module) -> None:
        """Refuse a victim that does not have the derivative asked for."""
        self.seen(model)

    def attacked_models(
        self, victim: TrainedModel, train: TrainSurrogate
    ) -> dict[str, AttackedModel]:
        """The victim itself, or a copy with another derivative."""
        return {"victim": AttackedModel(self.seen(victim.model), victim.state)}

    def seen(self, model: nn.Module) -> nn.Module:
        """The model itself, or a copy with the derivative that the attacker takes."""
        if self._gradient == "adaptive":
            model = adaptive_form(model)
        elif self._gradient is not None:
            model = with_gradient(model, self._gradient)
        if self._adjoint is not None:
            model = with_adjoint(model, adjoint=self._adjoint)
        return model


def named_labels(labels: GivenLabels) -> Labels:
    """The word for a choice of labels."""
    return "true" if labels is True else labels
