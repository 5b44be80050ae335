"""Base of smoothing schemes: noise on the graph, and what it certifies."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Gt, Lt
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from robust_diffusion.attacks.base import Kind
from robust_diffusion.certificates.bounds import ClassBounds, class_bounds
from robust_diffusion.certificates.noise import Noise
from robust_diffusion.checks import Count, Natural, validated

_LARGEST = 50
"""Totals at which the search for the largest certified one ends."""


@validated("certificate")
@dataclass(frozen=True, kw_only=True)
class Smoothing(ABC):
    """Randomised smoothing of a node classifier: the class that most noisy graphs are given.

    g(G)_v = argmax_c P(f(phi(G))_v = c) for a classifier f and noise phi on the graph. A bound on
    that probability, and on how far an attack can shift the distribution of phi(G), certifies g.

    Args:
        samples: Draws that bound the probabilities, at least 1.
        selection_samples: Further draws that name the class, at least 1.
        alpha: Probability that the certificate of a node is wrong, in (0, 1).
        budgets: Totals of flips or of injected nodes at which accuracy is listed and attacks run.

    Attributes:
        name: Of the configuration and of messages.
        kind: Attacks that it certifies against.
        unit: Unit of `budgets`.
    """

    name: ClassVar[str]
    kind: ClassVar[Kind]
    unit: ClassVar[str]

    samples: Count = 1000
    selection_samples: Count = 100
    alpha: Annotated[float, Gt(0), Lt(1)] = 0.01
    budgets: Sequence[Natural] = (1, 2, 3)

    def __post_init__(self) -> None:
        """Sort the budgets."""
        object.__setattr__(self, "budgets", tuple(sorted(self.budgets)))

    @property
    def probabilities(self) -> Mapping[str, float]:
        """Options of the noise, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name[:2] == "p_"}

    @abstractmethod
    def sample(
        self,
        edge_index: Int[Tensor, "2 e"],
        num_nodes: int,
        noise: Noise,
        draws: Sequence[int],
        edge_weight: Float[Tensor, " e"] | None = None,
    ) -> tuple[Int[Tensor, "2 s"], Float[Tensor, " s"] | None]:
        """Noisy graphs in one batch: node v of the i-th is node v + i n.

        Args:
            edge_index: Edges, both directions, without self-loops or duplicates.
            num_nodes: Number of nodes n.
            noise: Source of the draws.
            draws: Their numbers.
            edge_weight: How far each edge is there, 0 being no edge; gradients flow to it.

        Returns:
            Edges, and their weights if any were given.
        """

    @abstractmethod
    def grid(self) -> Iterator[Mapping[str, int]]:
        """Budgets that the certificate lists, from the smallest."""

    @abstractmethod
    def certified(self, bounds: ClassBounds, budget: Mapping[str, int]) -> Bool[np.ndarray, " t"]:
        """Nodes whose class no perturbation within a budget of `grid` changes."""

    @abstractmethod
    def mixes(self, total: int) -> Sequence[Mapping[str, int]]:
        """The ways in which an attack may spend one of `budgets`."""

    @abstractmethod
    def survival(self, degrees: int | NDArray[np.int64]) -> Any:
        """Probability that a node keeps any of `edges` edges."""

    def certified_at(self, bounds: ClassBounds, total: int) -> Bool[np.ndarray, " t"]:
        """Nodes certified against every mix of one of `budgets`."""
        certified: NDArray[np.bool_] = np.all(
            [self.certified(bounds, mix) for mix in self.mixes(total)], axis=0
        )
        return certified

    def largest(self, classes: int) -> int:
        """Largest total at which any model is certified: all draws agree; at most LARGEST."""
        votes = self.samples * torch.eye(1, classes, dtype=torch.long)
        bounds = class_bounds(votes, votes, self.alpha)
        return next((k for k in range(_LARGEST) if not self.certified_at(bounds, k + 1)), _LARGEST)


def copied(
    edge_index: Int[Tensor, "2 e"],
    mask: Bool[np.ndarray, "b e"],
    num_nodes: int,
    edge_weight: Float[Tensor, " e"] | None,
) -> tuple[Int[Tensor, "2 s"], Float[Tensor, " s"] | None]:
    """The kept edges of each copy of a graph in one batch, and their weights."""
    device = edge_index.device
    copy, edge = (torch.from_numpy(index).to(device) for index in mask.nonzero())
    weights = None if edge_weight is None else edge_weight[edge]
    return edge_index[:, edge] + copy * num_nodes, weights
