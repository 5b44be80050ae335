"""Base of smoothing schemes: noise on the graph, and the bounds that it certifies by."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
import torch
from annotated_types import Gt, Lt
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy.stats import beta
from torch import Tensor

from robust_diffusion.attacks.base import Kind
from robust_diffusion.checks import Count, Natural, validated

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))

# Draws depend on the order of these names.
Purpose = Literal["selection", "votes", "attacked", "model", "training"]
_Subject = Literal["edge", "node", "pair"]


@dataclass(frozen=True)
class Noise:
    """Random numbers by the number of a draw and of a node or a pair of nodes.

    What happens to an edge does not depend on the other edges, on their order, or on the draws that
    are made at the same time. So a draw is a function of the graph, counts of draws can be added
    up in any order, and a graph and its perturbation meet the same noise.

    Reference: SplitMix64, Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195.
    """

    seed: int  # in 0..2^32 - 1
    purpose: Purpose  # draws of one purpose are independent of those of another

    def uniform(
        self,
        subject: _Subject,
        draws: Int[np.ndarray, " b"],
        numbers: Int[np.ndarray, " k"],
    ) -> Float[np.ndarray, "b k"]:
        """Uniform numbers in [0, 1), of each draw and each numbered edge or node."""
        keys = self._keys(subject, draws)
        states = keys[:, None] + (numbers.astype(np.uint64) + np.uint64(1)) * GOLDEN
        return (_mixed(states) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def chosen_pairs(self, probability: float, draw: int, num_nodes: int) -> Int[np.ndarray, " k"]:
        """Numbers of the pairs that one draw chooses, each pair of all with this probability.

        Gaps between chosen pairs are geometric, so that only these are drawn. The pairs of the
        first nodes are the same in a graph of more nodes.
        """
        total = num_nodes * (num_nodes - 1) // 2
        if probability <= 0 or not total:
            return np.empty(0, dtype=np.int64)
        (key,) = self._keys("pair", np.array([draw]))
        generator = np.random.Generator(np.random.Philox(key=int(key)))
        expected = probability * total
        gaps = np.empty(0, dtype=np.int64)
        while gaps.sum() <= total:
            more = generator.geometric(probability, int(expected + 4 * expected**0.5) + 8)
            # A gap of a tiny probability may be as large as an integer can be.
            gaps = np.concatenate([gaps, np.minimum(more, total + 1)])
        chosen: NDArray[np.int64] = gaps.cumsum() - 1
        return chosen[chosen < total]

    def _keys(self, subject: _Subject, draws: NDArray[np.int64]) -> NDArray[np.uint64]:
        purpose = get_args(Purpose).index(self.purpose)
        stream = np.array([self.seed * 64 + purpose * 8 + get_args(_Subject).index(subject)])
        start = _mixed((stream.astype(np.uint64) + np.uint64(1)) * GOLDEN)
        return _mixed(start + (draws.astype(np.uint64) + np.uint64(1)) * GOLDEN)


def pair_numbers(edge_index: Int[Tensor, "2 e"]) -> Int[np.ndarray, " e"]:
    """The number h (h - 1) / 2 + l of each edge between nodes l < h, in either direction."""
    low, high = np.sort(edge_index.detach().cpu().numpy(), axis=0)
    numbers: NDArray[np.int64] = high * (high - 1) // 2 + low
    return numbers


def pairs(numbers: Int[np.ndarray, " k"]) -> Int[np.ndarray, "2 k"]:
    """The pairs l < h of these numbers."""
    # The root is one off at most, in pairs beyond 2^52.
    high = ((1 + np.sqrt(1 + 8 * numbers.astype(np.float64))) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > numbers
    high += high * (high + 1) // 2 <= numbers
    return np.stack([numbers - high * (high - 1) // 2, high])


def _mixed(states: NDArray[np.uint64]) -> NDArray[np.uint64]:
    states = (states ^ (states >> np.uint64(30))) * FACTORS[0]
    states = (states ^ (states >> np.uint64(27))) * FACTORS[1]
    return states ^ (states >> np.uint64(31))


SLACK = 1e-9
"""Two probabilities that differ by less are taken as equal, well above the rounding of sums."""


@dataclass(frozen=True, eq=False)
class ClassBounds:
    """Bounds of the smoothed class probabilities of each node, true at once with 1 - alpha."""

    predicted: Int[np.ndarray, " t"]  # the class that the selection draws name
    lower: Float[np.ndarray, " t"]  # least probability of that class
    upper: Float[np.ndarray, " t"]  # largest probability of any other class

    @property
    def abstained(self) -> Bool[np.ndarray, " t"]:
        """Nodes at which the draws do not tell the most probable class."""
        return ~(self.lower > self.upper + SLACK)


def clopper_pearson(
    counts: Int[np.ndarray, "..."], samples: int, alpha: float
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Exact one-sided bounds of a binomial probability, each true with 1 - alpha.

    Of k of N draws that count, lower = B(alpha; k, N - k + 1), upper = B(1 - alpha; k + 1, N - k),
    quantiles of the beta distribution; 0 where no draw counts, 1 where each does.

    Reference: Clopper and Pearson 1934, Biometrika 26(4).
    """
    lower = np.where(counts > 0, beta.ppf(alpha, counts, samples - counts + 1), 0.0)
    upper = np.where(counts < samples, beta.ppf(1 - alpha, counts + 1, samples - counts), 1.0)
    return lower, upper


def class_bounds(
    selection: Int[Tensor, "t c"], votes: Int[Tensor, "t c"], alpha: float
) -> ClassBounds:
    """Bounds from two independent sets of votes.

    The first set names the class; the second bounds the probability of that class from below and
    of each other class from above, C bounds at alpha / C (Bonferroni). What remains from the named
    class bounds the others as well.

    Reference: Bojchevski, Gasteiger and Günnemann 2020, arXiv:2008.12952.
    """
    counts = votes.numpy().astype(np.int64)
    samples, classes = int(counts[0].sum()), counts.shape[1]
    predicted = selection.argmax(1).numpy()
    lower, upper = clopper_pearson(counts, samples, alpha / classes)
    nodes = np.arange(len(counts))
    of_predicted = lower[nodes, predicted]
    upper[nodes, predicted] = 0.0
    return ClassBounds(predicted, of_predicted, np.minimum(upper.max(1), 1 - of_predicted))


def worst_case(
    clean: Float[np.ndarray, " r"],
    attacked: Float[np.ndarray, " r"],
    lower: Float[np.ndarray, " t"],
    upper: Float[np.ndarray, " t"],
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
    """Least and largest probability of an event under another distribution (Neyman-Pearson).

    The least that an event of probability p can become is reached by the event that fills regions
    in falling order of the likelihood ratio clean / attacked, the largest by rising order. Regions
    that the first distribution never meets are added to the largest, and never to the least.

    Args:
        clean: Probability of each region of constant likelihood ratio, without the attack.
        attacked: The same under the attack.
        lower: Least probability p of an event without the attack, to which the least belongs.
        upper: Largest probability p of another event, to which the largest belongs.
    """
    free = float(attacked[clean == 0].sum())
    met = clean > 0
    p, q = clean[met], attacked[met]
    falling = np.argsort(q / p)  # of clean / attacked
    return (
        _filled(p[falling], q[falling], lower),
        np.minimum(1, free + _filled(p[falling[::-1]], q[falling[::-1]], upper)),
    )


def _filled(
    p: NDArray[np.float64], q: NDArray[np.float64], mass: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mass of `q` in the first regions that hold the given mass of `p`."""
    filled: NDArray[np.float64] = np.interp(
        mass, np.concatenate([[0.0], p.cumsum()]), np.concatenate([[0.0], q.cumsum()])
    )
    return filled


MOST_SEARCHED = 50
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
        """Largest total at which any model is certified: all draws agree; at most MOST_SEARCHED."""
        votes = self.samples * torch.eye(1, classes, dtype=torch.long)
        bounds = class_bounds(votes, votes, self.alpha)
        return next(
            (k for k in range(MOST_SEARCHED) if not self.certified_at(bounds, k + 1)), MOST_SEARCHED
        )


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
