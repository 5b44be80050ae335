"""What a flow reads that changes between evaluations, kept for evaluating a step anew."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from torch import Tensor

RECORD: ContextVar[list[Any] | None] = ContextVar("record", default=None)
"""Takes what is read in a stretch that may be evaluated anew, in order."""

REPLAY: ContextVar[Iterator[Any] | None] = ContextVar("replay", default=None)
"""Gives it back, in the same order, while the stretch is evaluated anew."""


def recompute_contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts of a stretch of evaluations, and of evaluating it anew for its derivative.

    Within the second one, singular vectors and drawn biases are those of the first, and the power
    iteration does not go on: otherwise the derivative would be that of another function.
    """
    kept: list[Any] = []
    return _Setting(RECORD, lambda: kept), _Setting(REPLAY, lambda: iter(kept))


class _Setting(AbstractContextManager[None]):
    """A variable set to a value, made anew for each of the backward passes that enter it."""

    def __init__(self, variable: ContextVar[Any], value: Callable[[], Any]) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value())

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._token)


def remembered(value: Tensor) -> Tensor:
    """The value; where a stretch is evaluated anew, the one that it had the first time.

    Args:
        value: A tensor that is replaced between evaluations, never changed in place.
    """
    if (replay := REPLAY.get()) is not None:
        return next(replay)  # type: ignore[no-any-return]
    if (record := RECORD.get()) is not None:
        record.append(value)
    return value
