"""Graphs that are audited, and the rules that they break."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from torch import Tensor

Kind = Literal["injection", "modification"]
Level = Literal["error", "warning"]

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


def graph_parts(graph: GraphLike) -> tuple[Tensor, Tensor]:
    """Features and edges, on the CPU."""
    assert graph.x is not None
    assert graph.edge_index is not None
    return graph.x.detach().cpu(), graph.edge_index.detach().cpu()


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
    level: Level = "error"


class Violations(list[Violation]):
    """The rules that a graph breaks, in the order in which they are looked at."""

    def add(
        self, code: str, count: int, offenders: Iterable[str], message: str, level: Level = "error"
    ) -> None:
        """Add a violation if there are offenders.

        Args:
            code: The rule.
            count: Number of offenders.
            offenders: The first of them.
            message: With places {0} for their number and {1} for the first.
            level: As of `Violation`.
        """
        if count:
            shown = ", ".join(offenders) + (", ..." if count > SHOWN else "")
            self.append(Violation(code, message.format(count, shown), level))


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
