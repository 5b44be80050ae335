import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from robust_diffusion.system.numbers import (
    LEVEL,
    Estimate,
    holm,
    one_sample_p,
    starred,
    welch_p,
)

accuracies = st.lists(st.floats(0, 100).map(lambda x: round(x, 2)), min_size=2, max_size=10)
p_values = st.lists(st.floats(0, 1), max_size=12)


@given(accuracies, st.floats(0, 100), st.floats(0.1, 20))
def test_welch_is_the_textbook_formula(values: list[float], mean: float, std: float) -> None:
    n, m = len(values), 5
    own, variance = statistics.mean(values), statistics.variance(values)
    a, b = variance / n, std**2 / m
    degrees = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))
    t = abs(own - mean) / math.sqrt(a + b)
    p = welch_p(values, mean, std, m)
    assert p == pytest.approx(2 * stats.t.sf(t, degrees), abs=1e-9)


@given(accuracies, st.floats(0, 100))
def test_one_sample_is_the_textbook_formula(values: list[float], mean: float) -> None:
    p = one_sample_p(values, mean)
    if len(set(values)) == 1:
        assert p is None
        return
    error = statistics.stdev(values) / math.sqrt(len(values))
    t = abs(statistics.mean(values) - mean) / error
    assert p == pytest.approx(2 * stats.t.sf(t, len(values) - 1), abs=1e-9)


@given(accuracies)
def test_ends_of_an_interval_are_what_its_level_just_rejects(values: list[float]) -> None:
    interval = Estimate.of(values).interval
    if len(set(values)) == 1:
        assert interval == pytest.approx((values[0], values[0]))
        return
    for end in interval:
        assert one_sample_p(values, end) == pytest.approx(1 - LEVEL, abs=1e-6)


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


def test_a_star_is_holms_and_p_is_not_corrected() -> None:
    assert starred([0.04, None, 0.01, 0.03]) == ["0.04", "-", "0.01*", "0.03"]
