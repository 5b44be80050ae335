import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from robust_diffusion.system.numbers import LEVEL, Estimate, holm, starred

accuracies = st.lists(st.floats(0, 100).map(lambda x: round(x, 2)), min_size=2, max_size=10)
p_values = st.lists(st.floats(0, 1), max_size=12)


@given(accuracies, st.floats(0, 100), st.floats(0.1, 20))
def test_a_difference_of_means_is_tested_by_welch(
    values: list[float], mean: float, std: float
) -> None:
    own = statistics.mean(values), statistics.stdev(values), len(values)
    p = Estimate.sum([(1, *own), (-1, mean, std, 5)]).p()
    expected = stats.ttest_ind_from_stats(*own, mean, std, 5, equal_var=False).pvalue
    assert p == pytest.approx(expected, abs=1e-9)


@given(accuracies, st.floats(0, 100))
def test_a_mean_is_tested_by_student(values: list[float], mean: float) -> None:
    estimate = Estimate.of(values)
    if len(set(values)) == 1:
        assert estimate.p(mean) is None
        assert estimate.interval == pytest.approx((values[0], values[0]))
        return
    expected = stats.ttest_1samp(values, mean)
    assert estimate.p(mean) == pytest.approx(expected.pvalue, abs=1e-9)
    assert estimate.interval == pytest.approx(tuple(expected.confidence_interval(LEVEL)))


@given(p_values, st.floats(0.001, 0.999))
def test_holm_rejects_what_stepping_down_rejects(p: list[float], alpha: float) -> None:
    corrected = holm(p)
    rejected = set()
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if p[i] * (len(p) - rank) > alpha:
            break
        rejected.add(i)
    assert all(before <= after <= 1 for before, after in zip(p, corrected, strict=True))
    assert rejected == {i for i, value in enumerate(corrected) if value <= alpha}


def test_holm_skips_missing_tests() -> None:
    assert holm([0.001, math.nan, 0.0001]) == pytest.approx([0.001, math.nan, 0.0002], nan_ok=True)


def test_a_star_is_holms() -> None:
    assert starred([0.04, None, 0.01, 0.03]) == [False, False, True, False]
