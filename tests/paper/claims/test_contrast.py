import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from robust_diffusion.paper.claims.contrast import Moments, paired, welch

numbers = st.lists(
    st.floats(0, 100, allow_subnormal=False).map(lambda x: round(x, 4)), min_size=2, max_size=8
)


def difference(left: list[float], right: list[float], confidence: float = 0.95):  # type: ignore[no-untyped-def]
    return welch([(1.0, Moments.of(left)), (-1.0, Moments.of(right))], confidence=confidence)


@given(numbers, numbers)
def test_two_groups_are_welchs_test(left: list[float], right: list[float]) -> None:
    found = difference(left, right)
    if found.error == 0:
        assert len(set(left)) == len(set(right)) == 1
        return
    expected = stats.ttest_ind(left, right, equal_var=False, alternative="greater")
    interval = stats.ttest_ind(left, right, equal_var=False).confidence_interval(0.95)
    assert found.effect == pytest.approx(np.mean(left) - np.mean(right), abs=1e-9)
    assert found.p_above(0) == pytest.approx(expected.pvalue, abs=1e-9)
    assert found.p_below(0) == pytest.approx(1 - expected.pvalue, abs=1e-9)
    assert found.low == pytest.approx(interval.low, abs=1e-6)
    assert found.high == pytest.approx(interval.high, abs=1e-6)
    assert found.p_nonzero() == pytest.approx(
        2 * min(expected.pvalue, 1 - expected.pvalue), abs=1e-9
    )


@given(numbers.filter(lambda values: len(set(values)) > 1), st.integers(0, 99))
def test_paired_values_are_students_test_of_their_differences(left: list[float], seed: int) -> None:
    right = list(np.random.default_rng(seed).normal(50, 3, len(left)))
    found = paired([(1.0, left), (-1.0, right)])
    expected = stats.ttest_rel(left, right, alternative="greater")
    assert found.freedom == pytest.approx(len(left) - 1)
    assert found.p_above(0) == pytest.approx(expected.pvalue, abs=1e-9)
    interval = stats.ttest_rel(left, right).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-6)


def test_paired_sums_use_no_matrix_product() -> None:
    # With fused products, as BLAS takes them where the processor has any, the last bits differ.
    generator = np.random.default_rng(0)
    weights = [1.0, *[-1 / 7] * 7]
    for _ in range(50):
        groups = [(weight, generator.integers(0, 268, 5) / 268 * 100) for weight in weights]
        sums = [sum(weight * values[k] for weight, values in groups) for k in range(5)]
        found = paired([(weight, list(values)) for weight, values in groups])
        assert found.effect == np.mean(sums)


def test_hedges_g_is_the_textbooks() -> None:
    # Pooled deviation 2, difference 3, eight degrees of freedom.
    left, right = [5.0, 7.0, 8.0, 9.0, 11.0], [2.0, 4.0, 5.0, 6.0, 8.0]
    pooled = np.sqrt((np.var(left, ddof=1) + np.var(right, ddof=1)) / 2)
    assert difference(left, right).hedges_g == pytest.approx(3 / pooled * (1 - 3 / (4 * 8 - 1)))


def test_constant_values_are_certain_except_ties() -> None:
    apart, tied = difference([36.0, 36.0], [35.0, 35.0]), difference([36.0, 36.0], [36.0, 36.0])
    assert (apart.effect, apart.low, apart.high, apart.hedges_g) == (1.0, 1.0, 1.0, None)
    assert (apart.p_above(0), apart.p_below(0), apart.p_above(1)) == (0.0, 1.0, 1.0)
    assert (tied.p_above(0), tied.p_below(0), tied.p_nonzero()) == (1.0, 1.0, 1.0)
    assert tied.p_within(1) == 0.0
    assert math.isinf(tied.freedom)


def test_equal_values_have_no_variance() -> None:
    assert Moments.of([0.1 + 0.2] * 3).variance == 0


def test_a_single_value_is_refused() -> None:
    with pytest.raises(ValueError, match="variance"):
        Moments.of([1.0])


@pytest.mark.parametrize("margin", [0.5, 1.0, 5.0])
def test_equivalence_takes_the_larger_one_sided_p(margin: float) -> None:
    found = difference([50.0, 51.0, 52.0, 50.5], [50.2, 51.1, 51.5, 51.0])
    assert found.p_within(margin) == max(found.p_above(-margin), found.p_below(margin))


def coverage(draw, truth: float, rounds: int = 1500) -> float:  # type: ignore[no-untyped-def]
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(rounds):
        estimate = draw(generator)
        inside += estimate.low <= truth <= estimate.high
    return inside / rounds


def test_intervals_of_spread_cover_the_truth() -> None:
    def distances(values: np.ndarray) -> np.ndarray:
        return np.abs(values - np.median(values, axis=-1, keepdims=True))

    generator = np.random.default_rng(1)
    of_one = distances(generator.normal(size=(20_000, 5))).mean()

    def draw(generator: np.random.Generator):  # type: ignore[no-untyped-def]
        sides = [(1 / 9, 3.0)] * 9 + [(-1 / 9, 1.0)] * 9
        return welch([(w, Moments.of(distances(generator.normal(0, s, 5)))) for w, s in sides])

    assert coverage(draw, of_one * (3 - 1), rounds=400) > 0.94
