"""One climb: gradient steps on the features of some nodes, the best of them kept."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.attacks.losses import LOSSES, LossName
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.attacks.steps import RULES, Ascent, RuleName
from robust_diffusion.system.artifact import Artifact

Place = Callable[[Tensor], Tensor]
"""Features of the whole graph by those that are being moved."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Loss and steps of an attack by gradient.

    Args:
        loss: Raised by the steps; see `losses`.
        rule: Of one step; see `steps`.
        step_size: Length of a step, in normalised units: the learning rate of Adam, the change
            of each feature of a sign step.
    """

    loss: LossName = "logit"
    rule: RuleName = "adam"
    step_size: float = 0.1


@dataclass(frozen=True, eq=False)
class Found:
    """The most harmful features that were met, and how harmful they are.

    Args:
        features: Of the nodes that are moved.
        right: Targets that the model still classifies right.
        loss: Mean loss of the targets, raised by the attack.
        is_flat: Every gradient on the way was 0.
    """

    features: Float[Tensor, "k f"]
    right: int
    loss: float
    is_flat: bool = False

    @classmethod
    def unpacked(cls, artifact: Artifact) -> "Found":
        """The find that `packed` made an artifact of."""
        tensors, about = artifact.tensors, artifact.metadata
        return cls(tensors["features"], about["right"], tensors["loss"].item(), about["is_flat"])

    def packed(self) -> Artifact:
        """The same as an artifact; the loss need not be finite, as JSON's numbers are."""
        loss = torch.tensor(self.loss, dtype=torch.float64)
        tensors = {"features": self.features, "loss": loss}
        return Artifact(tensors, {"right": self.right, "is_flat": self.is_flat})

    @property
    def rank(self) -> tuple[int, float]:
        """Smaller is more harmful."""
        return self.right, -self.loss


class Harm:
    """Mean loss of the targets as a function of some nodes' features; keeps the most harmful."""

    def __init__(
        self, problem: Problem, place: Place, edge_index: Int[Tensor, "2 e"], loss: LossName
    ) -> None:
        self._labels = problem.labels  # first, so that a model that does not fit tells
        self._problem = problem
        self._place = place
        self._edges = edge_index
        self._loss = LOSSES[loss]
        self.best: Found | None = None

    def __call__(self, new: Tensor) -> Float[Tensor, ""]:
        """The mean loss, which has a gradient."""
        logits = self._problem.logits(self._place(new), self._edges)
        loss = self._loss(logits, self._labels).mean()
        right = (logits.argmax(1) == self._labels).sum()
        # Read together, to wait for a GPU once.
        count, level = torch.stack([right.double(), loss.detach().double()]).tolist()
        found = Found(new.detach(), int(count), level)
        if self.best is None or found.rank < self.best.rank:
            self.best = replace(found, features=found.features.clone())
        return loss


def climb(
    problem: Problem,
    place: Place,
    edge_index: Int[Tensor, "2 e"],
    start: Float[Tensor, "k f"],
    steps: Steps,
    limits: tuple[float, float] | tuple[Tensor, Tensor],
    num_steps: int,
) -> Found:
    """Take some steps, and return the most harmful features met, the start's among them.

    Args:
        problem: The form of the model that is differentiated, and the targets.
        place: Features of the whole graph by those that are moved.
        edge_index: Edges.
        start: Features of the nodes that are moved.
        steps: Loss and steps.
        limits: Smallest and largest feature.
        num_steps: At least 0.

    Raises:
        AttackError: There is no gradient, or it is not finite.
    """
    harm = Harm(problem, place, edge_index, steps.loss)
    ascent = Ascent(
        start.clamp(*limits),
        harm,
        lambda new: RULES[steps.rule](new, steps.step_size),
        lambda new: new.clamp(*limits),
        attack=problem.attack,
    )
    for _ in range(num_steps):
        end = ascent.advance(1)
        if (harm.best is not None and harm.best.right == 0) or ascent.is_flat:
            break
    else:
        end = ascent.advance(0)
        with torch.no_grad():
            harm(end)
    assert harm.best is not None
    best = harm.best
    return Found(best.features, best.right, best.loss, is_flat=num_steps > 0 and ascent.is_flat)
