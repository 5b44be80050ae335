"""One climb: gradient steps on injected features by a recipe, the best of them kept."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from robust_diffusion.attacks.injection.sharing import SharingName
from robust_diffusion.attacks.injection.starts import StartName
from robust_diffusion.attacks.losses import LOSSES, LossName
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.attacks.rows import FixedRows
from robust_diffusion.attacks.steps import RULES, Ascent, RuleName
from robust_diffusion.store import Artifact


@dataclass(frozen=True)
class Recipe:
    """The parts that an injection attack by gradient is put together from.

    Args:
        edges: How the new nodes share out their edges; see `sharing`.
        start: Features that they start from; see `starts`.
        loss: Raised by the steps; see `losses`.
        rule: Of one step; see `steps`.
        step_size: Length of a step, in normalised units: the learning rate of Adam, the change
            of each feature of a sign step.
    """

    edges: SharingName = "classes"
    start: StartName = "real"
    loss: LossName = "logit"
    rule: RuleName = "adam"
    step_size: float = 0.1

    def __str__(self) -> str:
        """The choices that tell one part of an attack from another."""
        return f"{self.edges}, {self.start}, {self.loss}"


@dataclass(frozen=True, eq=False)
class Found:
    """The most harmful features that were met, and how harmful they are.

    Args:
        features: Of the new nodes.
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
        """What `packed` made an artifact of."""
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
    """Mean loss of the targets as a function of the newest rows; remembers the most harmful."""

    def __init__(
        self, problem: Problem, old: FixedRows, edge_index: Int[Tensor, "2 e"], loss: LossName
    ) -> None:
        self._labels = problem.labels  # first, so that a model that does not fit tells
        self._problem = problem
        self._old = old
        self._edges = edge_index
        self._loss = LOSSES[loss]
        self.best: Found | None = None

    def __call__(self, new: Tensor) -> Float[Tensor, ""]:
        """The mean loss, which has a gradient."""
        logits = self._problem.logits(self._old.followed_by(new), self._edges)
        loss = self._loss(logits, self._labels).mean()
        right = int((logits.argmax(1) == self._labels).sum())
        found = Found(new.detach(), right, loss.item())
        if self.best is None or found.rank < self.best.rank:
            self.best = Found(new.detach().clone(), right, loss.item())
        return loss


def climb(
    problem: Problem,
    old: FixedRows,
    edge_index: Int[Tensor, "2 e"],
    start: Float[Tensor, "k f"],
    recipe: Recipe,
    limits: tuple[float, float],
    num_steps: int,
) -> Found:
    """Take some steps, and return the most harmful features met, the start's among them.

    Raises:
        AttackError: There is no gradient, or it is not finite.
    """
    harm = Harm(problem, old, edge_index, recipe.loss)
    ascent = Ascent(
        start.clamp(*limits),
        harm,
        lambda new: RULES[recipe.rule](new, recipe.step_size),
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
