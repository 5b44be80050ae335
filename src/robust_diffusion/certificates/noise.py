"""Random choices about nodes and pairs of nodes, each a function of its own number alone."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

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
            gaps = np.concatenate([gaps, more])
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
