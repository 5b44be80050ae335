"""Test of a trend from level to level."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

ROUNDS = 9_999
"""Random permutations behind a p-value, whose smallest value is then 1 / 10,000."""

Stratum = Mapping[float, Sequence[float]]


@dataclass(frozen=True)
class Trend:
    """Concordance of a measure with its levels, and one-sided p-values.

    Concordance is the share of pairs of different levels in order less that of those out of order:
    1 where every value is above all of lower levels, -1 the other way round.
    """

    concordance: float
    p_up: float
    p_down: float


def jonckheere(
    strata: Sequence[Stratum],
    *,
    blocks: Sequence[Hashable] | None = None,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> Trend:
    """Jonckheere and Terpstra's test of ordered levels, by permutation within each stratum.

    Values of different strata, such as other datasets, are never compared.

    Reference: Jonckheere 1954; Terpstra 1952.

    Args:
        strata: Per stratum, the values at each level, by seed.
        blocks: Block of each stratum; those of one block and size are permuted alike, which keeps
            one model's accuracies on several graphs together. Without them, each by itself.
        rounds: Number of random permutations.
        seed: Seed of the permutations.
    """
    observed, pairs = 0.0, 0
    drawn = np.zeros(rounds)
    orders: dict[Hashable, Int[ndarray, "r n"]] = {}
    generator = np.random.default_rng(seed)
    for block, stratum in zip(blocks or range(len(strata)), strata, strict=True):
        level = np.array([at for at, values in stratum.items() for _ in values])
        value = np.array([value for values in stratum.values() for value in values])
        rises = np.sign(level[:, None] - level[None, :])
        ordered = np.triu(np.sign(value[:, None] - value[None, :]))
        observed += float((rises * ordered).sum())
        pairs += int(np.abs(np.triu(rises)).sum())
        if (block, level.size) not in orders:
            unordered = np.tile(np.arange(level.size), (rounds, 1))
            orders[block, level.size] = generator.permuted(unordered, axis=1)
        drawn += _concordances(level[orders[block, level.size]], ordered)
    return Trend(
        concordance=observed / pairs if pairs else 0.0,
        p_up=(1 + int((drawn >= observed - 1e-9).sum())) / (rounds + 1),
        p_down=(1 + int((drawn <= observed + 1e-9).sum())) / (rounds + 1),
    )


def _concordances(
    levels: Float[ndarray, "r n"], ordered: Float[ndarray, "n n"]
) -> Float[ndarray, " r"]:
    """Concordance of each row of permuted levels; pair by pair, so that memory stays small."""
    total = np.zeros(len(levels))
    for i, j in zip(*np.nonzero(ordered), strict=True):
        total += ordered[i, j] * np.sign(levels[:, i] - levels[:, j])
    return total
