from itertools import permutations

import numpy as np
import pytest
from scipy.stats import kendalltau

from robust_diffusion.paper.claims.trend import ROUNDS, jonckheere


def exact(stratum: dict[float, list[float]]) -> float:
    """P-value of rising by every permutation there is."""
    levels = [at for at, values in stratum.items() for _ in values]
    values = [value for found in stratum.values() for value in found]

    def score(order: tuple[float, ...]) -> int:
        pairs = [(i, j) for i in range(len(values)) for j in range(i)]
        return sum(
            int(np.sign(order[i] - order[j]) * np.sign(values[i] - values[j])) for i, j in pairs
        )

    scores = [score(order) for order in permutations(levels)]
    return float(np.mean(np.array(scores) >= score(tuple(levels))))


@pytest.mark.parametrize(
    "stratum",
    [
        {1.0: [1.0, 2.0], 2.0: [2.5, 3.0], 3.0: [2.7, 4.0]},
        {1.0: [3.0, 3.0], 2.0: [3.0, 3.1], 4.0: [2.0]},
        {1.0: [5.0, 4.0, 3.0], 2.0: [1.0, 2.0, 2.5]},
    ],
)
def test_the_p_value_is_that_of_all_permutations(stratum: dict[float, list[float]]) -> None:
    assert jonckheere([stratum]).p_up == pytest.approx(exact(stratum), abs=0.015)


def test_concordance_is_kendalls_without_ties() -> None:
    values = list(np.random.default_rng(3).normal(size=7))
    stratum = {float(i): [value] for i, value in enumerate(values)}
    expected = kendalltau(range(7), values).statistic
    assert jonckheere([stratum], rounds=9).concordance == pytest.approx(expected)


def test_a_perfect_rise_and_fall_are_significant() -> None:
    rise = {1.0: [1.0, 2, 3], 2.0: [4.0, 5, 6], 3.0: [7.0, 8, 9]}
    fall = {at: [-value for value in values] for at, values in rise.items()}
    up, down = jonckheere([rise]), jonckheere([fall])
    assert (up.concordance, down.concordance) == (1.0, -1.0)
    assert up.p_up < 0.001 < 0.99 < up.p_down
    assert down.p_down < 0.001


def test_equal_values_say_nothing() -> None:
    flat = jonckheere([{1.0: [5.0, 5.0], 2.0: [5.0, 5.0]}])
    assert (flat.concordance, flat.p_up, flat.p_down) == (0.0, 1.0, 1.0)


def test_strata_are_never_compared_with_each_other() -> None:
    # Each rises, but the second lies far below the first at higher levels.
    first = {1.0: [80.0, 81, 82], 2.0: [83.0, 84, 85]}
    second = {3.0: [10.0, 11, 12], 4.0: [13.0, 14, 15]}
    both = jonckheere([first, second])
    assert both.concordance == 1.0
    assert both.p_up < jonckheere([first]).p_up


def test_what_belongs_together_counts_once() -> None:
    rise = {1.0: [1.0, 2.5, 3.0], 2.0: [2.0, 4.0, 5.0]}
    alone = jonckheere([rise])
    for blocks in (["cora"] * 3, ["cora"] * 2 + ["pubmed"]):
        together = jonckheere([rise] * 3, blocks=blocks)
        assert together.concordance == alone.concordance
        assert (together.p_up == pytest.approx(alone.p_up, abs=0.01)) is (len(set(blocks)) == 1)


def test_the_same_seed_is_the_same_p_value() -> None:
    stratum = {1.0: [1.0, 3.0], 2.0: [2.0, 4.0], 3.0: [3.5, 1.5]}
    assert jonckheere([stratum]) == jonckheere([stratum])
    assert jonckheere([stratum]).p_up >= 1 / (ROUNDS + 1)
