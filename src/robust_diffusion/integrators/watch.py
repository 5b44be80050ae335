"""Watch over a solver: evaluations that are many or too many, a corrector that does not settle."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from robust_diffusion.errors import TrainingError
from robust_diffusion.integrators.fixed_step import RightHandSide

log = logging.getLogger(__name__)

MANY = 10_000
"""Evaluations of one solve that are told; those of the paper take under a hundred."""

_UNSETTLED = "Functional iteration did not converge"
"""Start of torchdiffeq's warning that implicit_adams stepped before its corrector settled."""


class Watch:
    """The watch over the solves of one solver; it changes no number.

    Args:
        name: The solver's method, for messages.
        steps: The option that sets its steps, such as `solver.num_steps=4`; empty if it picks them.
        rtol: Its relative tolerance, if it has one.
        max_nfe: Most evaluations of one solve, those of its backward pass included; `None` for no
            limit.
    """

    def __init__(self, name: str, *, steps: str, rtol: float | None, max_nfe: int | None) -> None:
        self.name = name
        self.steps = steps
        self.rtol = rtol
        self.max_nfe = max_nfe
        self._told: set[str] = set()

    def over(self, rhs: RightHandSide, t_end: float, dtype: torch.dtype) -> RightHandSide:
        """The right-hand side of one solve on [0, t_end], counted.

        Raises:
            TrainingError: In the evaluation that is one too many.
        """
        if self.rtol is not None and self.rtol < torch.finfo(dtype).eps:
            self._tell(
                "solver.rtol=%g: below the rounding of %s, %.2g, so that steps shrink and shrink",
                *(self.rtol, str(dtype).removeprefix("torch."), torch.finfo(dtype).eps),
            )
        count = 0

        def evaluate(t: Tensor, z: Tensor) -> Tensor:
            nonlocal count
            if count == self.max_nfe:
                reached = f"{float(t.detach()):.4g} of {t_end:g}"
                raise TrainingError(
                    f"solver.max_nfe={self.max_nfe}: {self.name} was at t={reached} after as many "
                    "evaluations; loosen its tolerance, take fewer steps, or raise the limit"
                )
            if count == MANY:
                self._tell(
                    "solver=%s: %d evaluations in one solve, at t=%.4g of %g; solver.max_nfe or "
                    "time_limit ends what takes too long",
                    *(self.name, count, float(t.detach()), t_end),
                )
            count += 1
            return rhs(t, z)

        return evaluate

    @contextmanager
    def over_corrector(self, dtype: torch.dtype) -> Iterator[None]:
        """Tell once, not at each step of an epoch, that a corrector did not settle.

        It is to settle to 1e-7, which single precision cannot, so that there it says nothing.
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("always", message=_UNSETTLED)
            yield
        others = [w for w in caught if not str(w.message).startswith(_UNSETTLED)]
        for other in others:
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
        if len(others) < len(caught) and dtype == torch.float64:
            self.tell_of_steps(
                f"the corrector of {self.name} had not settled to 1e-7 after the 4 iterations "
                "that torchdiffeq gives it; more steps, or rk4, are more accurate"
            )

    def tell_of_steps(self, message: str, *, level: int = logging.WARNING) -> None:
        """Log, once, what is to be known about the steps, such as that they are too few."""
        self._tell("%s: " + message, self.steps, level=level)

    def _tell(self, message: str, *values: object, level: int = logging.WARNING) -> None:
        """Log once, not in each solve of an epoch."""
        if message not in self._told:
            self._told.add(message)
            log.log(level, message, *values)
