"""Re-evaluating a step in the backward pass, instead of keeping all that it computed.

A checkpointed step is evaluated a second time in the backward pass. By then the power iteration
of the spectral norm has moved on and biases may have been redrawn, so that plain recomputation
would differentiate another function. PyTorch's own remedy restores the random state only, not
buffers. Passing the values through every call would put them into the signature of each flow,
solver and step; so the flow records what it reads, and reads the same in the second evaluation.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from torch import Tensor
from torch.utils.checkpoint import checkpoint

RECORD: ContextVar[list[Any] | None] = ContextVar("record", default=None)
"""Takes the values that a stretch of evaluations reads, in order."""

REPLAY: ContextVar[Iterator[Any] | None] = ContextVar("replay", default=None)
"""Gives them back, in the same order, while the stretch is re-evaluated."""


def evaluate_flow(step: Callable[..., Any], *arguments: object, recompute: bool) -> Any:
    """Take a step; with `recompute`, keep only its arguments for the backward pass."""
    if not recompute:
        return step(*arguments)
    return checkpoint(
        step,
        *arguments,
        use_reentrant=False,
        context_fn=recompute_contexts,
        preserve_rng_state=False,
    )


def recompute_contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts of a stretch of evaluations, and of re-evaluating it for its derivative."""
    kept: list[Any] = []
    return _Within(RECORD, lambda: kept), _Within(REPLAY, lambda: iter(kept))


class _Within(AbstractContextManager[None]):
    """A variable set to a value, made again for each of the backward passes that enter it."""

    def __init__(self, variable: ContextVar[Any], value: Callable[[], Any]) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value())

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._token)


def remembered(value: Tensor) -> Tensor:
    """The value; where a stretch is re-evaluated, the one that it had the first time.

    It must be replaced between evaluations, never changed in place.
    """
    if (replay := REPLAY.get()) is not None:
        return next(replay)  # type: ignore[no-any-return]
    if (record := RECORD.get()) is not None:
        record.append(value)
    return value
