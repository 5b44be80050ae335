"""Columns of a feature matrix that carry nothing, or nothing any more once they are normalised."""

import logging

import torch
from jaxtyping import Float
from torch import Tensor

log = logging.getLogger(__name__)

NAMED = 10
"""Most columns that a line names."""

NARROW = 1e-3
"""Range of a normalised column, relative to its values, below which rounding may have merged some;
only such columns are looked at value by value."""


def tell_of_columns(name: str, raw: Float[Tensor, "n f"], normalized: Float[Tensor, "n f"]) -> None:
    """Log which columns are constant, and warn of those whose values normalisation has merged.

    All features share one mean and one deviation, so a column of large numbers, such as time
    stamps, presses all others into a range that single precision cannot tell apart.
    """
    low, high = raw.amin(0), raw.amax(0)
    constant = (low == high).nonzero().flatten().tolist()
    if constant:
        log.info("dataset=%s: %s the same at every node", name, _named(constant))
    low_after, high_after = normalized.amin(0), normalized.amax(0)
    reach = torch.maximum(low_after.abs(), high_after.abs())
    narrow = (high_after - low_after <= NARROW * reach) & (low < high)
    merged = [
        column
        for column in narrow.nonzero().flatten().tolist()
        if _different(raw[:, column]) > _different(normalized[:, column])
    ]
    if merged:
        log.warning(
            "dataset=%s: %s fewer values once normalised, as one mean and deviation serve all; "
            "subtract the offset of columns of large numbers, such as time stamps, and scale them "
            "as the others are",
            *(name, _named(merged, "has", "have")),
        )


def _different(values: Tensor) -> int:
    ordered = values.sort().values
    return 1 + int((ordered[1:] != ordered[:-1]).sum())


def _named(columns: list[int], one: str = "is", many: str = "are") -> str:
    listed = ", ".join(map(str, columns[:NAMED])) + (", ..." if len(columns) > NAMED else "")
    if len(columns) == 1:
        return f"feature {listed} {one}"
    return f"{len(columns)} features ({listed}) {many}"
