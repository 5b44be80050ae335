"""Check of the features that an attack has written."""

import math

import torch
from torch import Tensor

from robust_diffusion.attacks.audit.violation import Violation, first, nodes


class Changes:
    """Original nodes whose features are not what they were.

    Args:
        x: Features after the attack, original nodes first.
        reference: Features before it.

    Attributes:
        nodes: Their numbers.
        before: Their features before.
        after: Their features after.
    """

    def __init__(self, x: Tensor, reference: Tensor) -> None:
        rows = min(x.size(0), reference.size(0))
        x, reference = x[:rows], reference[:rows]
        self.nodes = (x != reference).any(1).nonzero()[:, 0]
        self.before, self.after = reference[self.nodes], x[self.nodes]


def form_violations(x: Tensor, reference: Tensor) -> list[Violation]:
    """Features of another type than the clean graph's, or not finite."""
    found = []
    if x.dtype != reference.dtype:
        message = f"features are of type {x.dtype}; the clean graph's are {reference.dtype}"
        found.append(Violation("features_dtype", message))
    bad = ~x.isfinite()
    if count := int(bad.sum()):
        rows = bad.any(1).nonzero()[:, 0]
        where = first(nodes(rows), rows.numel())
        message = f"{count} features are NaN or infinite, the first at {where}; all must be finite"
        found.append(Violation("not_finite", message))
    return found


def limit_violations(
    x: Tensor, numbers: Tensor, limits: tuple[float, float], before: Tensor | None = None
) -> list[Violation]:
    """Features out of range.

    Args:
        x: Features of some nodes.
        numbers: These nodes.
        limits: Smallest and largest value; they count as the type of `x` rounds them.
        before: What the features were; one that was out of range already may be anything up to it.
    """
    low, high = rounded_outwards(limits[0], x.dtype, -1), rounded_outwards(limits[1], x.dtype, 1)
    values = x.double()
    below, above = low - values, values - high
    if before is not None:
        below = torch.minimum(below, before.double() - values)
        above = torch.minimum(above, values - before.double())
    beyond = torch.maximum(below, above)
    beyond = beyond.nan_to_num(nan=-math.inf, posinf=math.inf)
    if not (count := int((beyond > 0).sum())):
        return []
    rows = (beyond > 0).any(1)
    worst = values[rows].gather(1, beyond[rows].argmax(1, keepdim=True))[:, 0]
    message = (
        f"{count} features are out of range, the first at "
        f"{first(nodes(numbers[rows], worst), int(rows.sum()))}; the range is "
        f"{limits[0]:g}..{limits[1]:g}"
    )
    return [Violation("feature_limits", message)]


def rounded_outwards(limit: float, dtype: torch.dtype, sign: int) -> float:
    """An upper (1) or lower (-1) limit, or the nearest number of a type where that lies beyond."""
    rounded = torch.tensor(limit, dtype=dtype).double().item()
    return sign * max(sign * limit, sign * rounded)
