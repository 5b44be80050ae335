"""Sparsity-aware smoothing, against flips of edges."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor
from torch_geometric.utils import coalesce

from robust_diffusion.attacks.base import Kind
from robust_diffusion.certificates.base import (
    SLACK,
    ClassBounds,
    Noise,
    Smoothing,
    copied,
    pair_numbers,
    pairs,
    worst_case,
)
from robust_diffusion.checks import Natural, Probability, validated
from robust_diffusion.errors import ConfigError


@validated("certificate")
@dataclass(frozen=True, kw_only=True)
class SparseSmoothing(Smoothing):
    """Smoothing that deletes each edge with p_minus, and joins each other pair with p_plus.

    A node is certified against r_a added and r_d deleted edges anywhere in the graph, if the
    smallest probability of its class exceeds the largest of any other class over `flip_regions`.

    Reference: Bojchevski, Gasteiger and Günnemann 2020, arXiv:2008.12952.

    Args:
        p_plus: Probability of joining a pair, in 0..1; the sum with p_minus must be below 1.
        p_minus: Probability of deleting an edge, in 0..1.
        max_additions: Largest listed number of added edges r_a, at least 0.
        max_deletions: Largest listed number of deleted edges r_d, at least 0.

    Raises:
        ConfigError: A number is out of range.

    Examples:
        >>> from robust_diffusion.certificates import SparseSmoothing
        >>> SparseSmoothing(p_minus=0.6, samples=500).unit
        'flipped edges'
    """

    name: ClassVar[str] = "sparse"
    kind: ClassVar[Kind] = "modification"
    unit: ClassVar[str] = "flipped edges"

    p_plus: Probability = 0.001
    p_minus: Probability = 0.8
    max_additions: Natural = 4
    max_deletions: Natural = 8

    def __post_init__(self) -> None:
        """Check the sum of the probabilities."""
        super().__post_init__()
        if not self.p_plus + self.p_minus < 1:
            raise ConfigError(
                f"certificate.p_plus={self.p_plus}, p_minus={self.p_minus}: must be below 1 in all"
            )

    def sample(
        self,
        edge_index: Int[Tensor, "2 e"],
        num_nodes: int,
        noise: Noise,
        draws: Sequence[int],
        edge_weight: Float[Tensor, " e"] | None = None,
    ) -> tuple[Int[Tensor, "2 s"], Float[Tensor, " s"] | None]:
        """Draw noisy graphs; see `Smoothing`.

        A pair of weight w keeps w if the noise spares its edge, and gains 1 - w if the noise joins
        the pair, so that weights 0 and 1 are equivalent to no edge and an edge.
        """
        numbers = pair_numbers(edge_index)
        spared = noise.uniform("edge", np.array(draws), numbers) >= self.p_minus
        edges, weights = copied(edge_index, spared, num_nodes, edge_weight)
        joined = [noise.chosen_pairs(self.p_plus, draw, num_nodes) for draw in draws]
        known = np.unique(numbers)
        others = [ids[~np.isin(ids, known, assume_unique=True)] for ids in joined]
        ends = [pairs(ids) + i * num_nodes for i, ids in enumerate(others)]
        new = torch.from_numpy(np.concatenate(ends, axis=1)).to(edges.device)
        added = torch.cat([new, new.flip(0)], 1)
        if edge_weight is None or weights is None:
            return torch.cat([edges, added], 1), None
        again, missing = copied(
            edge_index,
            np.stack([np.isin(numbers, ids) for ids in joined]),
            num_nodes,
            1 - edge_weight,
        )
        assert missing is not None
        return coalesce(  # type: ignore[no-any-return]
            torch.cat([edges, again, added], 1),
            torch.cat([weights, missing, weights.new_ones(added.size(1))]),
            num_nodes=len(draws) * num_nodes,
        )

    def grid(self) -> Iterator[Mapping[str, int]]:
        """Yield every number of additions with every number of deletions."""
        for added, deleted in product(range(self.max_additions + 1), range(self.max_deletions + 1)):
            yield {"additions": added, "deletions": deleted}

    def certified(self, bounds: ClassBounds, budget: Mapping[str, int]) -> Bool[np.ndarray, " t"]:
        """Return the nodes certified against additions and deletions; see `Smoothing`."""
        clean, attacked = flip_regions(
            self.p_plus, self.p_minus, budget["additions"], budget["deletions"]
        )
        least, largest = worst_case(clean, attacked, bounds.lower, bounds.upper)
        return least > largest + SLACK

    def mixes(self, total: int) -> Sequence[Mapping[str, int]]:
        """Return every split of the total into additions and deletions."""
        return [{"additions": added, "deletions": total - added} for added in range(total + 1)]

    def survival(self, degrees: int | NDArray[np.int64]) -> Any:
        """Compute the probability that a node keeps at least one edge, without joined pairs."""
        return 1 - self.p_minus**degrees


@cache
def flip_regions(
    p_plus: float, p_minus: float, additions: int, deletions: int
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
    """Compute the probabilities of regions of constant likelihood ratio, without and with attack.

    Region q contains the noisy graphs that differ from the clean one in q of the r_a + r_d attacked
    pairs. Its ratio clean / attacked is

    (p_plus / (1 - p_minus))^(q - r_d) (p_minus / (1 - p_plus))^(q - r_a),

    so there are r_a + r_d + 1 regions. Each probability is that of a sum of two binomial counts.

    Reference: arXiv:2008.12952.
    """

    def of_sum(p_added: float, p_deleted: float) -> NDArray[np.float64]:
        of_added = binom.pmf(np.arange(additions + 1), additions, p_added)
        of_deleted = binom.pmf(np.arange(deletions + 1), deletions, p_deleted)
        probabilities: NDArray[np.float64] = np.convolve(of_added, of_deleted)
        return probabilities

    # Under attack, an attacked pair differs from the clean graph unless the noise flips it back.
    return of_sum(p_plus, p_minus), of_sum(1 - p_minus, 1 - p_plus)
