"""Base of smoothing schemes: noise on the graph, and the bounds that certify predictions."""

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
    """Counter-based random numbers, indexed by draw and by node or pair of nodes.

    The noise on an edge does not depend on other edges, on their order, or on draws in the same
    batch. A draw is therefore a function of the graph, counts of draws can be added up in any
    order, and a graph and its perturbation receive the same noise.

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
        """Draw uniform numbers in [0, 1) for each draw and each numbered edge or node."""
        keys = self._keys(subject, draws)
        states = keys[:, None] + (numbers.astype(np.uint64) + np.uint64(1)) * GOLDEN
        return (_mixed(states) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def chosen_pairs(self, probability: float, draw: int, num_nodes: int) -> Int[np.ndarray, " k"]:
        """Select each pair of nodes with a probability; return the numbers of the selected pairs.

        Gaps between selected pairs are geometric, so only the gaps are drawn. The selected pairs of
        the first nodes are the same in a graph with more nodes.
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
            # For a tiny probability, a gap may be as large as the largest integer.
            gaps = np.concatenate([gaps, np.minimum(more, total + 1)])
        numbers: NDArray[np.int64] = gaps.cumsum() - 1
        return numbers[numbers < total]

    def _keys(self, subject: _Subject, draws: NDArray[np.int64]) -> NDArray[np.uint64]:
        purpose = get_args(Purpose).index(self.purpose)
        stream = np.array([self.seed * 64 + purpose * 8 + get_args(_Subject).index(subject)])
        start = _mixed((stream.astype(np.uint64) + np.uint64(1)) * GOLDEN)
        return _mixed(start + (draws.astype(np.uint64) + np.uint64(1)) * GOLDEN)


def pair_numbers(edge_index: Int[Tensor, "2 e"]) -> Int[np.ndarray, " e"]:
    """Number each edge between nodes l < h, in either direction, by h (h - 1) / 2 + l."""
    low, high = np.sort(edge_index.detach().cpu().numpy(), axis=0)
    numbers: NDArray[np.int64] = high * (high - 1) // 2 + low
    return numbers


def pairs(numbers: Int[np.ndarray, " k"]) -> Int[np.ndarray, "2 k"]:
    """Return the pairs l < h with these numbers."""
    # For numbers beyond 2^52, the root may be off by one.
    high = ((1 + np.sqrt(1 + 8 * numbers.astype(np.float64))) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > numbers
    high += high * (high + 1) // 2 <= numbers
    return np.stack([numbers - high * (high - 1) // 2, high])


def _mixed(states: NDArray[np.uint64]) -> NDArray[np.uint64]:
    states = (states ^ (states >> np.uint64(30))) * FACTORS[0]
    states = (states ^ (states >> np.uint64(27))) * FACTORS[1]
    return states ^ (states >> np.uint64(31))


SLACK = 1e-9
"""Difference below which two probabilities count as equal; well above rounding errors of sums."""


@dataclass(frozen=True, eq=False)
class ClassBounds:
    """Bounds on the smoothed class probabilities of each node, jointly true with 1 - alpha."""

    predicted: Int[np.ndarray, " t"]  # majority class of the selection draws
    lower: Float[np.ndarray, " t"]  # lower bound on the probability of that class
    upper: Float[np.ndarray, " t"]  # upper bound on the probability of any other class

    @property
    def abstained(self) -> Bool[np.ndarray, " t"]:
        """Nodes at which the draws do not determine the most probable class."""
        return ~(self.lower > self.upper + SLACK)


def clopper_pearson(
    counts: Int[np.ndarray, "..."], samples: int, alpha: float
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Compute exact one-sided bounds on a binomial probability, each true with 1 - alpha.

    If k of N draws are hits, lower = B(alpha; k, N - k + 1) and upper = B(1 - alpha; k + 1, N - k),
    quantiles of the beta distribution; lower is 0 for k = 0, and upper is 1 for k = N.

    Reference: Clopper and Pearson 1934, Biometrika 26(4).
    """
    lower = np.where(counts > 0, beta.ppf(alpha, counts, samples - counts + 1), 0.0)
    upper = np.where(counts < samples, beta.ppf(1 - alpha, counts + 1, samples - counts), 1.0)
    return lower, upper


def class_bounds(
    selection: Int[Tensor, "t c"], votes: Int[Tensor, "t c"], alpha: float
) -> ClassBounds:
    """Compute bounds from two independent sets of votes.

    The first set selects the class. The second bounds the probability of that class from below and
    of each other class from above, with C bounds at alpha / C (Bonferroni). One minus the lower
    bound of the selected class is another upper bound for the others.

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
    """Bound the probability of an event under another distribution (Neyman-Pearson).

    The smallest probability that an event of probability p can have is reached by filling regions
    in descending order of the likelihood ratio clean / attacked, the largest one by ascending
    order. Regions of probability 0 under the first distribution only count for the largest one.

    Args:
        clean: Probability of each region of constant likelihood ratio, without the attack.
        attacked: Probability of each region under the attack.
        lower: Probability p of an event without the attack, for the smallest probability.
        upper: Probability p of another event without the attack, for the largest probability.
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
    """Return the mass of `q` in the first regions whose mass of `p` is `mass`."""
    filled: NDArray[np.float64] = np.interp(
        mass, np.concatenate([[0.0], p.cumsum()]), np.concatenate([[0.0], q.cumsum()])
    )
    return filled


MOST_SEARCHED = 50
"""Largest total that the search for the largest certified one tries."""


@validated("certificate")
@dataclass(frozen=True, kw_only=True)
class Smoothing(ABC):
    """Randomised smoothing of a node classifier: the majority class over noisy graphs.

    g(G)_v = argmax_c P(f(phi(G))_v = c) for a classifier f and noise phi on the graph. Bounds on
    that probability, and on how far an attack can shift the distribution of phi(G), certify g.

    Args:
        samples: Draws that bound the probabilities, at least 1.
        selection_samples: Further draws that select the class, at least 1.
        alpha: Probability that the certificate of a node is wrong, in (0, 1).
        budgets: Total numbers of flips or injected nodes for listed accuracies and for attacks.

    Attributes:
        name: Name in the configuration and in messages.
        kind: Kind of attacks that it certifies against.
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
        """Draw noisy graphs in one batch; node v of the i-th graph is node v + i n.

        Args:
            edge_index: Edges, both directions, without self-loops or duplicates.
            num_nodes: Number of nodes n.
            noise: Source of the draws.
            draws: Numbers of the draws.
            edge_weight: Weights of relaxed edges, 0 for no edge; gradients flow to them.

        Returns:
            Edges, and their weights if `edge_weight` is not `None`.
        """

    @abstractmethod
    def grid(self) -> Iterator[Mapping[str, int]]:
        """Yield the budgets that the certificate lists, from the smallest."""

    @abstractmethod
    def certified(self, bounds: ClassBounds, budget: Mapping[str, int]) -> Bool[np.ndarray, " t"]:
        """Return the nodes whose class no perturbation within a budget of `grid` changes."""

    @abstractmethod
    def mixes(self, total: int) -> Sequence[Mapping[str, int]]:
        """Return the ways in which an attack may spend one of `budgets`."""

    @abstractmethod
    def survival(self, degrees: int | NDArray[np.int64]) -> Any:
        """Compute the probability that a node of each degree keeps at least one edge."""

    def certified_at(self, bounds: ClassBounds, total: int) -> Bool[np.ndarray, " t"]:
        """Return the nodes certified against every mix of one of `budgets`."""
        certified: NDArray[np.bool_] = np.all(
            [self.certified(bounds, mix) for mix in self.mixes(total)], axis=0
        )
        return certified

    def largest(self, classes: int) -> int:
        """Return the largest total, up to MOST_SEARCHED, that is certified if all draws agree."""
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
    """Return the edges in `mask` of each copy of a graph, as one batch, and their weights."""
    device = edge_index.device
    copy, edge = (torch.from_numpy(index).to(device) for index in mask.nonzero())
    weights = None if edge_weight is None else edge_weight[edge]
    return edge_index[:, edge] + copy * num_nodes, weights
