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
    """Each edge is deleted with p_minus, and each other pair of nodes is joined with p_plus.

    Certifies a node against r_a added and r_d deleted edges anywhere in the graph, when the least
    probability of its class is above the largest of any other over `flip_regions`.

    Reference: Bojchevski, Gasteiger and Günnemann 2020, arXiv:2008.12952.

    Args:
        p_plus: In 0..1, with p_minus below 1 in all.
        p_minus: In 0..1.
        max_additions: Most added edges r_a that are listed, at least 0.
        max_deletions: Most deleted edges r_d that are listed, at least 0.

    Raises:
        ConfigError: A number out of range.

    Examples:
        >>> from robust_diffusion import SparseSmoothing
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
        """Noisy graphs; see `Smoothing`.

        A pair of weight w keeps w of its edge where the noise spares it, and gains 1 - w where the
        noise joins the pair, so that weights 0 and 1 are what they stand for.
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
        """Every number of additions with every number of deletions."""
        for added, deleted in product(range(self.max_additions + 1), range(self.max_deletions + 1)):
            yield {"additions": added, "deletions": deleted}

    def certified(self, bounds: ClassBounds, budget: Mapping[str, int]) -> Bool[np.ndarray, " t"]:
        """Nodes certified against a number of additions and deletions; see `Smoothing`."""
        clean, attacked = flip_regions(
            self.p_plus, self.p_minus, budget["additions"], budget["deletions"]
        )
        least, largest = worst_case(clean, attacked, bounds.lower, bounds.upper)
        return least > largest + SLACK

    def mixes(self, total: int) -> Sequence[Mapping[str, int]]:
        """Every number of additions, and deletions for the rest."""
        return [{"additions": added, "deletions": total - added} for added in range(total + 1)]

    def survival(self, degrees: int | NDArray[np.int64]) -> Any:
        """Probability that a node keeps any of its edges; joined pairs are none of them."""
        return 1 - self.p_minus**degrees


@cache
def flip_regions(
    p_plus: float, p_minus: float, additions: int, deletions: int
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
    """Probabilities of the regions of constant likelihood ratio, without and with the attack.

    Region q holds the noisy graphs that differ from the clean one in q of the r_a + r_d attacked
    pairs. Its ratio clean / attacked is

    (p_plus / (1 - p_minus))^(q - r_d) (p_minus / (1 - p_plus))^(q - r_a),

    so r_a + r_d + 1 regions are all. Each probability is that of a sum of two binomial counts.

    Reference: arXiv:2008.12952.
    """

    def of_sum(p_added: float, p_deleted: float) -> NDArray[np.float64]:
        of_added = binom.pmf(np.arange(additions + 1), additions, p_added)
        of_deleted = binom.pmf(np.arange(deletions + 1), deletions, p_deleted)
        probabilities: NDArray[np.float64] = np.convolve(of_added, of_deleted)
        return probabilities

    # An attacked pair differs from the clean graph where the noise did not undo the attack.
    return of_sum(p_plus, p_minus), of_sum(1 - p_minus, 1 - p_plus)
