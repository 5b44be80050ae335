"""Threat models: the model that the attacker gets to see, and what of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from torch import nn

from robust_diffusion.checks import check_name, validated
from robust_diffusion.errors import ConfigError
from robust_diffusion.models.adaptive import adaptive_form, with_adjoint, with_gradient
from robust_diffusion.models.guard import Gradient

Labels = Literal["predicted", "true"]

GivenLabels = Literal["predicted", "true", True]
"""YAML, and so threat.labels=true on the command line, reads the word as a truth value."""

Seeding = Literal["name", "cell"]

OWN_NAMES = frozenset({"clean", "victim"})
"""Names of the clean graph and the tested model among results, so of no attack or surrogate."""


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


@runtime_checkable
class ThreatModel(Protocol):
    """Decides which models a run's attacks are crafted on.

    Every one but `Poisoning` is evasion: the victim is trained on the clean graph, and the target
    nodes are the test nodes.
    """

    name: str
    labels: Labels

    def check(self, model: nn.Module) -> None:
        """Refuse, by a `ConfigError`, an untrained victim that the attacker could not see."""

    def attacked_models(
        self, victim: TrainedModel, train: TrainSurrogate
    ) -> dict[str, TrainedModel]:
        """Return the models that attacks are crafted on, by name; `train` makes surrogates."""


@validated("threat")
class WhiteBox:
    """The attacker knows the victim and differentiates through it, PDE solver included.

    Args:
        name: `white_box`, or `adaptive` where the defence is made differentiable first.
        labels: See `BlackBox`; predictions are those of the model itself.
        adjoint: Differentiate the PDE by the adjoint equation, or directly; `None` as the victim
            is configured.
        gradient: What the attacker differentiates a defender's re-weighting or truncation by;
            `None` as the victim is configured; see `models.adaptive.with_gradient`. `adaptive`
            for the form that each model declares; see `adaptive_form` there.

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
    ) -> dict[str, TrainedModel]:
        """The victim itself, or a copy with another derivative."""
        return {"victim": replace(victim, model=self.seen(victim.model))}

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


@validated("threat")
class BlackBox:
    """The attacker knows neither the victim nor its defence, and attacks surrogates of its own.

    With several surrogates every attack runs on each; a run then tells the worst and the mean.

    Reference: section "Attack Setup", arXiv:2209.07754; GRB, arXiv:2111.04314.

    Args:
        surrogates: By name, each builds a surrogate from the numbers of features and classes.
        fit: Trains them, a `Fit`.
        labels: The targets' classes as the attacker takes them: its surrogate's predictions, or
            the true ones.
        seeding: A surrogate's random state: `name`, derived from the run's seed and the
            surrogate's name; or `cell`, the victim's own, by which a surrogate of the victim's
            architecture is the victim itself, weight for weight.

    Raises:
        ConfigError: No surrogate, or a name that is none.

    Examples:
        >>> from functools import partial
        >>> import pytorch_lightning as pl
        >>> from robust_diffusion import GCN, BlackBox, Fit
        >>> fit = Fit(partial(pl.Trainer, accelerator="cpu"), max_epochs=100)
        >>> BlackBox({"gcn": partial(GCN, hidden_channels=64)}, fit).name
        'black_box'
    """

    name = "black_box"

    def __init__(
        self,
        surrogates: Mapping[str, Callable[..., nn.Module]],
        fit: Callable[..., Any],
        *,
        labels: GivenLabels = "predicted",
        seeding: Seeding = "name",
    ) -> None:
        if not surrogates:
            raise ConfigError("surrogate=[]: threat=black_box needs one, such as gcn")
        for surrogate in surrogates:
            check_name("surrogates", surrogate, OWN_NAMES)
        self.labels = named_labels(labels)
        self._surrogates = surrogates
        self._fit = fit
        self._seeding = seeding

    def check(self, model: nn.Module) -> None:
        """Any victim will do; the attacker does not see it."""

    def attacked_models(
        self, victim: TrainedModel, train: TrainSurrogate
    ) -> dict[str, TrainedModel]:
        """Train the surrogates; the victim is not looked at."""
        return {
            name: train(name, build, self._fit, self._seeding)
            for name, build in self._surrogates.items()
        }


class Poisoning(BlackBox):
    """The attacker changes the graph before the victim is trained on it.

    The victim is retrained on each attacked graph, from the run's seed, and tested on it.
    Every node is attacked, so that any pair may be flipped, and `budget.edge_ratio` is a share of
    all edges. The attacker knows the classes of the train nodes, its surrogates' predictions
    elsewhere, and not the victim. Its surrogates are trained on the clean graph.

    Reference: Zügner and Günnemann 2019, arXiv:1902.08412.

    Arguments as `BlackBox`.

    Examples:
        >>> from functools import partial
        >>> import pytorch_lightning as pl
        >>> from robust_diffusion import GCN, Fit, Poisoning
        >>> fit = Fit(partial(pl.Trainer, accelerator="cpu"), max_epochs=100)
        >>> Poisoning({"gcn": partial(GCN, hidden_channels=64)}, fit).name
        'poisoning'
    """

    name = "poisoning"
