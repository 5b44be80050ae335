import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from robust_diffusion.paper.figures.statistics import edge_statistics

SRC = np.array([1, 2, 3, 0, 0, 0, 2])
DST = np.array([0, 0, 0, 1, 2, 3, 1])
LABEL = np.array([0, 0, 1, 1])
"""Edges between classes: 2 -> 0, 3 -> 0, 0 -> 2, 0 -> 3, 2 -> 1."""


def test_means_and_shares() -> None:
    weight = np.array([4.0, 1.0, 1.0, 2.0, 3.0, 5.0, 2.0])
    found = edge_statistics(weight, SRC, DST, LABEL)
    assert (found.intra_edges, found.inter_edges) == (2, 5)
    assert found.intra_mean == pytest.approx(3.0)
    assert found.inter_mean == pytest.approx(12 / 5)
    assert found.inter_share == pytest.approx(12 / 18)
    # Of node 0: half the mean each; of 2 and 3 the only edge; of 1 one of two equal ones.
    assert found.inter_preference == pytest.approx(np.mean([0.5, 0.5, 1, 1, 1]))


def test_equal_weights_prefer_nothing() -> None:
    found = edge_statistics(np.full(7, 0.2), SRC, DST, LABEL)
    assert found.inter_preference == pytest.approx(1)
    assert found.inter_above_intra == pytest.approx(0.5)
    assert found.evenness == pytest.approx(1)


def test_evenness_is_zero_for_one_edge() -> None:
    weight = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    assert edge_statistics(weight, SRC, DST, LABEL).evenness == pytest.approx(0, abs=1e-12)


@given(st.lists(st.floats(0, 1), min_size=7, max_size=7))
def test_the_probability_is_mann_and_whitneys(values: list[float]) -> None:
    weight = np.array(values)
    inter = LABEL[SRC] != LABEL[DST]
    expected = mannwhitneyu(weight[inter], weight[~inter]).statistic / (5 * 2)
    found = edge_statistics(weight, SRC, DST, LABEL)
    assert found.inter_above_intra == pytest.approx(expected)
    assert found.inter_preference is not None
    assert 0 <= (found.evenness if found.evenness is not None else 0) <= 1 + 1e-9


@given(st.floats(0.01, 100), st.integers(0, 99))
def test_only_relative_weights_tell(factor: float, seed: int) -> None:
    weight = np.random.default_rng(seed).random(7)
    one, other = (edge_statistics(w, SRC, DST, LABEL) for w in (weight, factor * weight))
    for name in ("inter_share", "inter_preference", "inter_above_intra", "evenness"):
        assert getattr(one, name) == pytest.approx(getattr(other, name))


def test_what_no_edge_tells_is_none() -> None:
    found = edge_statistics(np.array([1.0]), np.array([0]), np.array([1]), np.array([0, 0]))
    assert found.inter_mean is found.inter_above_intra is found.evenness is None
    assert found.intra_mean == 1.0
