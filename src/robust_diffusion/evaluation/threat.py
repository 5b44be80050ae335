"""Threat models: the models that an attacker knows, and the classes of its targets."""

from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import nn

from robust_diffusion.attacks.task import Knowledge
from robust_diffusion.checks import check_name, validated
from robust_diffusion.errors import ConfigError
from robust_diffusion.models.adaptive import with_adjoint, with_gradient
from robust_diffusion.models.guard import Gradient
from robust_diffusion.models.victim import Victim

OpenThreat = Literal["white_box", "adaptive"]
"""Names of the threat models whose attacker knows the model, in `conf/threat/` and in Python."""

ThreatName = Literal["white_box", "adaptive", "black_box"]
"""Names of the threat models of a trained model."""

Seeding = Literal["name", "run"]

OWN_NAMES = frozenset({"clean", "victim"})
"""Names reserved for the clean graph and the tested model; attacks and surrogates cannot use
them."""


@dataclass(frozen=True)
class TrainedModel:
    """A model with its best weights, in eval mode, on the CPU."""

    model: nn.Module
    epochs: int
    seconds: float  # wall time of the original training
    val_accuracy: float  # the best, in 0..1
    state: str  # hash of weights and buffers
    path: Path  # entry in the cache
    reused: bool  # whether the weights came from the cache
    best_epoch: int | None = None  # epoch of these weights; `None` for older cache entries


TrainSurrogate = Callable[[str, Callable[..., nn.Module], Any, Seeding], TrainedModel]
"""Train a surrogate, from its name, a function that builds it, a `Fit`, and its seeding."""


class ThreatModel(ABC):
    """What an attacker knows: models to craft attacks on, and classes of the target nodes.

    All except `Poisoning` are evasion: the victim is trained on the clean graph, and the target
    nodes are the test nodes.

    Attributes:
        name: white_box, adaptive, black_box, poisoning, or a custom name.
        attacker_knows: Classes of the targets that the attacker uses: `predictions` of the attacked
            model, or the true `labels`.
        knows_victim: Whether attacks are crafted on the victim.
        poisons: Whether the victim is trained on the attacked graph.
    """

    name: Any
    attacker_knows: Knowledge
    knows_victim: ClassVar[bool] = True
    poisons: ClassVar[bool] = False

    def form(self, victim: Victim) -> Victim:
        """Return the victim as the attacker differentiates it; a `ConfigError` if that cannot be.

        It is unused if the attacker does not know the victim.
        """
        return victim

    def surrogates(self, train: TrainSurrogate) -> dict[str, TrainedModel]:
        """Return further trained models that attacks are crafted on, by name."""
        return {}


def threat_model(
    name: ThreatName,
    attacker_knows: Knowledge = "predictions",
    surrogates: Mapping[str, nn.Module] | None = None,
) -> ThreatModel:
    """Return the threat model of a name, as `conf/threat/` builds it; surrogates are trained."""
    if name == "black_box":
        return BlackBox(surrogates or {}, attacker_knows=attacker_knows)
    gradient: Literal["adaptive"] | None = "adaptive" if name == "adaptive" else None
    return WhiteBox(name=name, attacker_knows=attacker_knows, gradient=gradient)


@validated("threat")
class WhiteBox(ThreatModel):
    """The attacker knows the victim and differentiates through it, PDE solver included.

    Args:
        name: `white_box`, or `adaptive` if the defence is made differentiable first.
        attacker_knows: Classes of the targets that the attacker uses: `predictions` of the model
            itself, or the true `labels`.
        adjoint: Whether to differentiate the PDE by the adjoint equation instead of directly;
            `None` for the victim's configuration.
        gradient: Gradient of a defence, as in `models.adaptive.with_gradient`; `adaptive` for the
            form that each model declares, as in `Victim.adaptive`; `None` for the victim's
            configuration.

    Examples:
        >>> import torch
        >>> from robust_diffusion.evaluation import WhiteBox
        >>> from robust_diffusion.models import GNNGuard
        >>> from robust_diffusion.models.victim import Victim
        >>> x, edge_index = torch.rand(2, 5), torch.tensor([[0, 1], [1, 0]])
        >>> victim = Victim.probe(GNNGuard(5, 8, out_channels=3), x, edge_index)
        >>> WhiteBox(gradient="adaptive").form(victim).module.guard.gradient
        'straight_through'
    """

    def __init__(
        self,
        *,
        name: OpenThreat = "white_box",
        attacker_knows: Knowledge = "predictions",
        adjoint: bool | None = None,
        gradient: Gradient | Literal["adaptive"] | None = None,
    ) -> None:
        self.name = name
        self.attacker_knows = attacker_knows
        self._adjoint = adjoint
        self._gradient = gradient

    def form(self, victim: Victim) -> Victim:
        """Return the victim itself, or a form with the derivative that the attacker uses."""
        if self._gradient == "adaptive":
            victim = victim.adaptive()
        elif self._gradient is not None:
            victim = victim.form(with_gradient(victim.module, self._gradient))
        if self._adjoint is not None:
            adjoint = with_adjoint(victim.module, adjoint=self._adjoint)
            victim = victim.form(adjoint, draws=victim.draws)
        return victim


@validated("threat")
class BlackBox(ThreatModel):
    """The attacker knows neither the victim nor its defence, and attacks self-trained surrogates.

    If there are several surrogates, every attack runs on each, and a run reports the worst and the
    mean.

    Reference: section "Attack Setup", arXiv:2209.07754; GRB, arXiv:2111.04314.

    Args:
        surrogates: Functions by name that build a surrogate from the numbers of features and
            classes, or trained models.
        fit: A `Fit` that trains them; `None` for trained models.
        attacker_knows: Classes of the targets that the attacker uses: `predictions` of the
            surrogate, or the true `labels`.
        seeding: Random state of a surrogate: `name` derives it from the run's seed and the
            surrogate's name; `run` uses that of the victim, so a surrogate with the victim's
            architecture has the same weights as the victim.

    Raises:
        ConfigError: There is no surrogate, or a name is invalid.

    Examples:
        >>> from functools import partial
        >>> import pytorch_lightning as pl
        >>> from robust_diffusion.evaluation import BlackBox
        >>> from robust_diffusion.models import GCN
        >>> from robust_diffusion.training import Fit
        >>> fit = Fit(partial(pl.Trainer, accelerator="cpu"), max_epochs=100)
        >>> BlackBox({"gcn": partial(GCN, hidden_channels=64)}, fit).name
        'black_box'
    """

    name = "black_box"
    knows_victim = False

    def __init__(
        self,
        surrogates: Mapping[str, Callable[..., nn.Module]],
        fit: Callable[..., Any] | None = None,
        *,
        attacker_knows: Knowledge = "predictions",
        seeding: Seeding = "name",
    ) -> None:
        if not surrogates:
            raise ConfigError(
                f"surrogates: expected at least one for threat={self.name}, got none; name one, "
                "such as gcn"
            )
        for surrogate in surrogates:
            check_name("surrogates", surrogate, OWN_NAMES)
        self.attacker_knows = attacker_knows
        self._surrogates = surrogates
        self._fit = fit
        self._seeding = seeding

    def surrogates(self, train: TrainSurrogate) -> dict[str, TrainedModel]:
        """Train the surrogates, without using the victim."""
        return {
            name: train(name, build, self._fit, self._seeding)
            for name, build in self._surrogates.items()
        }


class Poisoning(BlackBox):
    """The attacker changes the graph before the victim is trained on it.

    The victim is retrained on each attacked graph, from the run's seed, and tested on it.
    Every node is under attack, so any pair may be flipped, and `budget.edge_ratio` is a share of
    all edges. The attacker knows the classes of the train nodes, uses the surrogates' predictions
    elsewhere, and does not know the victim. The surrogates are trained on the clean graph.

    Reference: Zügner and Günnemann 2019, arXiv:1902.08412.

    For the arguments see `BlackBox`.

    Examples:
        >>> from functools import partial
        >>> import pytorch_lightning as pl
        >>> from robust_diffusion.evaluation import Poisoning
        >>> from robust_diffusion.models import GCN
        >>> from robust_diffusion.training import Fit
        >>> fit = Fit(partial(pl.Trainer, accelerator="cpu"), max_epochs=100)
        >>> Poisoning({"gcn": partial(GCN, hidden_channels=64)}, fit).name
        'poisoning'
    """

    name = "poisoning"
    poisons = True
