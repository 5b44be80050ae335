import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robust_diffusion.paper.page.charts.axis import Axis, linear_axis, log_axis

NUMBERS = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-3)


@given(st.lists(NUMBERS, min_size=1, max_size=8))
def test_a_linear_axis_spans_all_values(values: list[float]) -> None:
    axis = linear_axis(values, start=300, end=20)
    assert axis.low <= min(values)
    assert axis.high >= max(values)
    assert 2 <= len(axis.ticks) <= 7
    assert all(20 - 1e-6 <= axis(value) <= 300 + 1e-6 for value in values)
    assert axis(axis.low) == pytest.approx(300)
    assert axis(axis.high) == pytest.approx(20)


def test_a_linear_axis_stays_where_values_make_sense() -> None:
    axis = linear_axis([-3, 97, 104], start=0, end=1, at_least=0, at_most=100)
    assert (axis.low, axis.high, axis.ticks) == (0, 100, (0, 20, 40, 60, 80, 100))
    assert axis.clamped(104) == 1


@given(st.lists(st.floats(1e-3, 1e7), min_size=1, max_size=8))
def test_a_logarithmic_axis_holds_all_values(values: list[float]) -> None:
    axis = log_axis(values, start=0, end=100)
    assert all(0 <= axis(value) <= 100 for value in values)
    assert axis(math.sqrt(axis.low * axis.high)) == pytest.approx(50)
    assert all(axis.low <= tick <= axis.high for tick in axis.ticks)


def test_a_logarithmic_axis_has_round_ticks() -> None:
    assert log_axis([12, 70], start=0, end=1).ticks == (10, 20, 50, 100)


def test_a_single_value_is_in_the_middle() -> None:
    assert Axis(50, 50, 0, 10, (50.0,))(50) == 5
