"""Count of the evaluations of flows (NFE)."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from robust_diffusion.flows import Flow


class EvaluationCount:
    """Number of right-hand-side evaluations since `count_evaluations` was entered."""

    def __init__(self) -> None:
        self.total = 0


@contextmanager
def count_evaluations(model: nn.Module) -> Iterator[EvaluationCount]:
    """Count how often the flows inside `model` are evaluated (NFE) in a `with` block."""
    count = EvaluationCount()

    def add_one(*_: object) -> None:
        count.total += 1

    handles = [m.register_forward_hook(add_one) for m in model.modules() if isinstance(m, Flow)]
    try:
        yield count
    finally:
        for handle in handles:
            handle.remove()
