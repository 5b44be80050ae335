"""Node-aware bi-smoothing, against injected nodes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from robust_diffusion.attacks.base import Kind
from robust_diffusion.certificates.base import (
    SLACK,
    ClassBounds,
    Noise,
    Smoothing,
    copied,
    pair_numbers,
)
from robust_diffusion.checks import Natural, Probability, validated
from robust_diffusion.errors import ConfigError


@validated("certificate")
@dataclass(frozen=True, kw_only=True)
class BiSmoothing(Smoothing):
    """Smoothing that deletes each edge with p_e, and all edges of a node at once with p_n.

    The scheme assumes that a node without edges does not change the prediction of any other node;
    `certify` refuses a model in which it finds the contrary. If k nodes with at most m edges each
    are injected, all of them lose all their edges with probability at least

    s = (p_n + (1 - p_n) p_e^m)^k,

    regardless of the noise on the clean graph: edges to deleted nodes are also gone, and losing one
    edge makes no other loss less probable (Harris' inequality), so injected nodes may also be
    joined with each other. In that event, the noisy graph is that of the clean graph, so

    p'_A >= s p_A and p'_B <= s p_B + 1 - s,

    and a node is certified if s (p_A - p_B + 1) > 1.

    Reference: evasion certificate of Lai, Zhu, Pan and Zhou 2023, arXiv:2312.03979.

    Args:
        p_e: Probability that one edge is deleted, in [0, 1).
        p_n: Probability that all edges of a node are deleted, in [0, 1).
        max_nodes: Largest listed number of injected nodes k, at least 0.
        edges: Listed numbers of edges m of each injected node, each at least 0. Attacks and
            `budgets` use the first one.

    Raises:
        ConfigError: A number is out of range.

    Examples:
        >>> from robust_diffusion.certificates import BiSmoothing
        >>> BiSmoothing(p_n=0.95, max_nodes=2).unit
        'injected nodes'
    """

    name: ClassVar[str] = "bi_smoothing"
    kind: ClassVar[Kind] = "injection"
    unit: ClassVar[str] = "injected nodes"

    p_e: Probability = 0.8
    p_n: Probability = 0.9
    budgets: Sequence[Natural] = (1, 2, 3, 4, 6)
    max_nodes: Natural = 8
    edges: Sequence[Natural] = (4, 1, 50)

    def __post_init__(self) -> None:
        """Check that there is at least one number of edges."""
        super().__post_init__()
        if not self.edges:
            raise ConfigError("certificate.edges=[]: must hold one number at least")
        object.__setattr__(self, "edges", tuple(self.edges))

    def sample(
        self,
        edge_index: Int[Tensor, "2 e"],
        num_nodes: int,
        noise: Noise,
        draws: Sequence[int],
        edge_weight: Float[Tensor, " e"] | None = None,
    ) -> tuple[Int[Tensor, "2 s"], Float[Tensor, " s"] | None]:
        """Draw noisy graphs; see `Smoothing`. A deleted node stays, without edges."""
        which = np.array(draws)
        there = noise.uniform("node", which, np.arange(num_nodes)) >= self.p_n
        spared = noise.uniform("edge", which, pair_numbers(edge_index)) >= self.p_e
        src, dst = edge_index.detach().cpu().numpy()
        return copied(edge_index, spared & there[:, src] & there[:, dst], num_nodes, edge_weight)

    def grid(self) -> Iterator[Mapping[str, int]]:
        """Yield every number of injected nodes with every number of edges."""
        for edges, nodes in product(self.edges, range(self.max_nodes + 1)):
            yield {"edges_per_node": edges, "nodes": nodes}

    def certified(self, bounds: ClassBounds, budget: Mapping[str, int]) -> Bool[np.ndarray, " t"]:
        """Return the nodes certified against a number of injected nodes; see `Smoothing`."""
        s = (self.p_n + (1 - self.p_n) * self.p_e ** budget["edges_per_node"]) ** budget["nodes"]
        certified: NDArray[np.bool_] = s * (bounds.lower - bounds.upper + 1) > 1 + SLACK
        return certified

    def mixes(self, total: int) -> Sequence[Mapping[str, int]]:
        """Return the budget with the first number of edges."""
        return [{"edges_per_node": self.edges[0], "nodes": total}]

    def survival(self, degrees: int | NDArray[np.int64]) -> Any:
        """Compute the probability that a node keeps at least one edge to a remaining node."""
        there = 1 - self.p_n
        return there * (1 - (1 - there * (1 - self.p_e)) ** degrees)
