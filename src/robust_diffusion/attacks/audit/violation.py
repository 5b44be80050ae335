"""Subjects of an audit, and its findings."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from torch import Tensor

Kind = Literal["injection", "modification"]

SHOWN = 3
"""Offenders that a message names."""


@runtime_checkable
class GraphLike(Protocol):
    """Anything with features and edges, such as PyG's `Data` or a `PerturbedGraph`."""

    @property
    def x(self) -> Tensor | None:
        """Features, n x f."""

    @property
    def edge_index(self) -> Tensor | None:
        """Edges, 2 x e, both directions."""


@dataclass(frozen=True)
class Violation:
    """One rule that a perturbed graph breaks.

    Args:
        code: The rule.
        message: One line: what, how often, the first offenders, and what is allowed.
        level: A `warning` is no breach of the budget.
    """

    code: str
    message: str
    level: Literal["error", "warning"] = "error"


def first(offenders: Iterable[str], count: int) -> str:
    """The first few offenders in words.

    Args:
        offenders: No more of them than are shown.
        count: How many there are.
    """
    shown = ", ".join(offenders)
    return f"{shown}, ..." if count > SHOWN else shown


def pairs(edges: Tensor, values: Tensor | None = None) -> Iterator[str]:
    """The first columns of a 2 x k tensor as `u-v`, each with its value if there are any."""
    return _named([f"{u}-{v}" for u, v in edges[:, :SHOWN].t().tolist()], values)


def nodes(numbers: Tensor, values: Tensor | None = None) -> Iterator[str]:
    """The first of the nodes, each with its value if there are any."""
    return _named([f"node {number}" for number in numbers[:SHOWN].tolist()], values)


def _named(names: list[str], values: Tensor | None) -> Iterator[str]:
    if values is None:
        return iter(names)
    shown = values[: len(names)].tolist()
    return (f"{name} ({value:.7g})" for name, value in zip(names, shown, strict=True))
