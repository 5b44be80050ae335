"""Evaluating a step anew in the backward pass, instead of keeping all that it computed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch.utils.checkpoint import checkpoint

Recompute = Callable[[], tuple[AbstractContextManager[None], AbstractContextManager[None]]]
"""Makes the contexts of a step's evaluation, and of evaluating it anew."""


def evaluate(step: Callable[..., Any], *arguments: object, recompute: Recompute | None) -> Any:
    """Take a step; with `recompute`, keep only its arguments for the backward pass."""
    if recompute is None:
        return step(*arguments)
    return checkpoint(
        step, *arguments, use_reentrant=False, context_fn=recompute, preserve_rng_state=False
    )
