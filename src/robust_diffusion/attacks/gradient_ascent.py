"""Gradient ascent: step rules, a resumable ascent, and a climb that returns the best features."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from robust_diffusion.attacks.base import Task, Variable, Victim, check_finite, gradient
from robust_diffusion.attacks.feature_set import FeatureSet
from robust_diffusion.attacks.losses import LOSSES, LossName
from robust_diffusion.operators import AnyFeatures
from robust_diffusion.system.artifact import Artifact

RuleName = Literal["adam", "sign", "halving_sign"]
Rule = Callable[[Tensor, Tensor], None]
"""Moves a variable uphill, in place, given the gradient and the value before the step."""


class Adam:
    """Adam's steps on `variable`, in place; `size` is the learning rate, above 0.

    `unit` is that of the variable. Gradients are per unit, so it divides Adam's epsilon.
    """

    def __init__(self, variable: Tensor, size: float, unit: float = 1.0) -> None:
        self._variable = variable
        self._optimizer = torch.optim.Adam([variable], lr=size * unit, eps=1e-8 / unit)

    def __call__(self, slope: Tensor, value: Tensor) -> None:
        """Take one step; see `Rule`."""
        self._variable.grad = -slope
        self._optimizer.step()


class Sign:
    """Steps along the sign of the gradient, in place; each entry changes by `size * unit`."""

    def __init__(self, variable: Tensor, size: float, unit: float = 1.0) -> None:
        self.size = size * unit
        self._variable = variable

    def __call__(self, slope: Tensor, value: Tensor) -> None:
        """Take one step; see `Rule`."""
        self._variable += self.size * slope.sign()


class HalvingSign(Sign):
    """Sign steps whose length halves after `patience` steps without a gain, at least 1.

    Each halving also goes back to the best point so far.

    Reference: the idea of Auto-PGD, Croce and Hein 2020, arXiv:2003.01690.
    """

    def __init__(self, variable: Tensor, size: float, unit: float = 1.0, patience: int = 5) -> None:
        super().__init__(variable, size, unit)
        self._patience = patience
        self._since = 0
        self._best: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(self, slope: Tensor, value: Tensor) -> None:
        """Take one step; see `Rule`."""
        self._since += 1
        if self._best is None or value > self._best[0]:
            self._best, self._since = (value.detach(), self._variable.clone(), slope), 0
        if self._since == self._patience:
            self.size /= 2
            self._since = 0
            _, best, slope = self._best
            self._variable.copy_(best)
        super().__call__(slope, value)


RULES: Mapping[str, Callable[[Tensor, float, float], Rule]] = {
    "adam": Adam,
    "sign": Sign,
    "halving_sign": HalvingSign,
}


@dataclass(frozen=True, kw_only=True)
class StepRule:
    """Loss and step rule of a gradient attack."""

    loss: LossName = "logit"  # raised by the steps; see `losses`
    rule: RuleName = "adam"  # of one step; see `RULES`
    # Length of a step: Adam's learning rate, or the change of each feature by a sign step; see
    # `Budget.scale_steps`.
    step_size: float = 0.1

    def of(self, variable: Tensor, unit: float = 1.0) -> Rule:
        """Build the step rule for a variable of this unit."""
        return RULES[self.rule](variable, self.step_size, unit)


class Ascent:
    """Gradient ascent on features or edge weights, to raise `objective`.

    `rule` builds a step rule from the variable that it moves, and `project` maps the variable back
    into its range after each step. `variable` is a name for messages. `is_flat` is true as long as
    every gradient was 0.
    """

    def __init__(
        self,
        start: Float[Tensor, "k f"],
        objective: Callable[[Tensor], Tensor],
        rule: Callable[[Tensor], Rule],
        project: Callable[[Tensor], Tensor] = lambda free: free,
        *,
        variable: Variable = "features",
    ) -> None:
        self._free = start.detach().clone()
        self._objective = objective
        self._rule = rule(self._free)
        self._project = project
        self._variable = variable
        # The sign of a NaN is 0, so the steps themselves do not show it. Each gradient is checked,
        # and the result is read once after several steps, to sync with a GPU only once.
        self._finite = torch.ones((), dtype=torch.bool, device=start.device)
        self._flat = torch.ones((), dtype=torch.bool, device=start.device)
        self.is_flat = True

    def advance(self, num_steps: int) -> Float[Tensor, "k f"]:
        """Take `num_steps` more steps and return the variable."""
        for _ in range(num_steps):
            self.step()
        self.read()
        return self._free

    def step(self) -> Float[Tensor, "k f"]:
        """Take a step and return the variable; `read` checks the gradient."""
        free = self._free.detach().requires_grad_()
        value = self._objective(free)
        slope = gradient(value, free, self._variable)
        self._finite &= torch.isfinite(slope).all()
        self._flat &= ~slope.any()
        self._rule(slope, value)
        return self._free.copy_(self._project(self._free))

    def read(self, *more: Shaped[Tensor, ""]) -> list[float]:
        """Check the gradients so far, set `is_flat`, and return further numbers, in one sync."""
        numbers = [number.double() for number in (self._finite, self._flat, *more)]
        finite, flat, *values = torch.stack(numbers).tolist()
        self.is_flat = bool(flat)
        check_finite(bool(finite), self._variable)
        return values


@dataclass(frozen=True, eq=False)
class Found:
    """The most harmful features of an ascent, and how harmful they are."""

    features: Float[Tensor, "k f"]  # of the nodes that the attack moves
    right: int  # targets that the model still classifies correctly
    loss: float  # mean loss of the targets, which the attack raises
    is_flat: bool = False  # whether every gradient along the ascent was 0

    @classmethod
    def unpacked(cls, artifact: Artifact) -> "Found":
        """Restore the features from an artifact of `packed`."""
        tensors, about = artifact.tensors, artifact.metadata
        return cls(tensors["features"], about["right"], tensors["loss"].item(), about["is_flat"])

    def packed(self, **tensors: Tensor) -> Artifact:
        """Convert to an artifact, with further tensors."""
        # Stored as a tensor, since the loss may be infinite and JSON numbers may not.
        loss = torch.tensor(self.loss, dtype=torch.float64)
        about = {"right": self.right, "is_flat": self.is_flat}
        return Artifact({"features": self.features, "loss": loss, **tensors}, about)

    @property
    def rank(self) -> tuple[int, float]:
        """Sort key of harm; smaller is more harmful."""
        return self.right, -self.loss


def climb(
    victim: Victim,
    task: Task,
    place: Callable[[Tensor], AnyFeatures],
    edge_index: Int[Tensor, "2 e"],
    start: Float[Tensor, "k f"],
    steps: StepRule,
    allowed: FeatureSet,
    num_steps: int,
) -> Found:
    """Take up to `num_steps` steps and return the most harmful features, the start included.

    `place` builds the features of the whole graph from those that the steps move. `victim` is the
    form of the model that is differentiated.
    """
    labels = task.labels
    best: list[Found] = []
    unread: list[Tensor] = []  # of the last pass: features, correct targets and loss

    def harm(free: Tensor) -> Tensor:
        new = allowed.exact(free)
        logits = victim(place(new), edge_index)[task.targets]
        loss = LOSSES[steps.loss](logits, labels).mean()
        # A copy, since a step moves the variable in place.
        unread[:] = new.detach().clone(), (logits.argmax(1) == labels).sum(), loss.detach()
        return loss

    def note() -> None:
        features, *numbers = unread
        right, loss = ascent.read(*numbers)
        best[:] = [min([*best, Found(features, int(right), loss)], key=lambda found: found.rank)]

    free = allowed.clip(start)
    ascent = Ascent(free, harm, partial(steps.of, unit=allowed.unit), allowed.clip)
    for _ in range(num_steps):
        free = ascent.step()
        note()
        if best[0].right == 0 or ascent.is_flat:
            break
    else:
        with torch.no_grad():
            harm(free)
        note()
    return replace(best[0], is_flat=num_steps > 0 and ascent.is_flat)
