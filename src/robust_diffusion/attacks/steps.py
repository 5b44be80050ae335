"""Steps uphill: rules of one step, and an ascent that can be broken off and taken up again."""

from collections.abc import Callable, Mapping
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.attacks.problem import check_finite, gradient

RuleName = Literal["adam", "sign", "halving_sign"]


@runtime_checkable
class Rule(Protocol):
    """Moves a variable uphill, in place."""

    def __call__(self, slope: Tensor, value: Tensor) -> None:
        """Take one step.

        Args:
            slope: Gradient of what is raised, at the variable.
            value: What is raised, before the step.
        """


class Adam:
    """Adam's steps.

    Args:
        variable: Moved in place.
        size: The learning rate, above 0.
    """

    def __init__(self, variable: Tensor, size: float) -> None:
        self._variable = variable
        self._optimizer = torch.optim.Adam([variable], lr=size)

    def __call__(self, slope: Tensor, value: Tensor) -> None:
        """One step; see `Rule`."""
        self._variable.grad = -slope
        self._optimizer.step()


class Sign:
    """Steps of one length along the sign of the gradient.

    Args:
        variable: Moved in place.
        size: Change of each entry, above 0.
    """

    def __init__(self, variable: Tensor, size: float) -> None:
        self.size = size
        self._variable = variable

    def __call__(self, slope: Tensor, value: Tensor) -> None:
        """One step; see `Rule`."""
        self._variable += self.size * slope.sign()


class HalvingSign(Sign):
    """Sign steps whose length halves, from the best point on, after steps without a gain.

    Reference: the idea of Auto-PGD, Croce and Hein 2020, arXiv:2003.01690.

    Args:
        variable: Moved in place.
        size: Change of each entry at first, above 0.
        patience: Steps without a gain after which it halves, at least 1.
    """

    def __init__(self, variable: Tensor, size: float, patience: int = 5) -> None:
        super().__init__(variable, size)
        self._patience = patience
        self._since = 0
        self._best: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(self, slope: Tensor, value: Tensor) -> None:
        """One step; see `Rule`."""
        self._since += 1
        if self._best is None or value > self._best[0]:
            self._best, self._since = (value.detach(), self._variable.clone(), slope), 0
        if self._since == self._patience:
            self.size /= 2
            self._since = 0
            _, best, slope = self._best
            self._variable.copy_(best)
        super().__call__(slope, value)


RULES: Mapping[str, Callable[[Tensor, float], Rule]] = {
    "adam": Adam,
    "sign": Sign,
    "halving_sign": HalvingSign,
}


class Ascent:
    """Gradient ascent on injected features.

    Args:
        start: Where it starts; left alone.
        objective: Scalar that is raised.
        rule: Builds the rule of a step from the variable that it moves.
        project: Maps the variable back into its range after each step.
        attack: Name of the attack, for messages.

    Attributes:
        is_flat: Every gradient so far was 0.
    """

    def __init__(
        self,
        start: Float[Tensor, "k f"],
        objective: Callable[[Tensor], Tensor],
        rule: Callable[[Tensor], Rule],
        project: Callable[[Tensor], Tensor] = lambda free: free,
        *,
        attack: str,
    ) -> None:
        self._free = start.detach().clone()
        self._objective = objective
        self._rule = rule(self._free)
        self._project = project
        self._attack = attack
        # A NaN is not told by where the steps lead: its sign is 0. Each gradient is looked at, and
        # the answer asked for at the end of some steps, to wait for a GPU only once.
        self._finite = torch.ones((), dtype=torch.bool, device=start.device)
        self._flat = torch.ones((), dtype=torch.bool, device=start.device)
        self.is_flat = True

    def advance(self, num_steps: int) -> Float[Tensor, "k f"]:
        """Take some more steps, and return where they lead.

        Raises:
            AttackError: There is no gradient, or it is not finite.
        """
        for _ in range(num_steps):
            free = self._free.detach().requires_grad_()
            value = self._objective(free)
            slope = gradient(value, free, attack=self._attack, of="features")
            self._finite &= torch.isfinite(slope).all()
            self._flat &= ~slope.any()
            self._rule(slope, value)
            self._free.copy_(self._project(self._free))
        finite, self.is_flat = torch.stack([self._finite, self._flat]).tolist()
        check_finite(finite, attack=self._attack, of="features")
        return self._free
