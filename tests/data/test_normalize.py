import logging

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from robust_diffusion.data import normalize
from robust_diffusion.data.normalize import FeatureScale, feature_scale, log_columns
from robust_diffusion.errors import ConfigError, DataError

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def normalized(x: Tensor) -> Tensor:
    return feature_scale(x).normalize(x)


def drawn(*size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(size, dtype=dtype, generator=torch.Generator().manual_seed(0))


@DTYPES
def test_equals_the_formula_in_float64_and_leaves_its_input(dtype: torch.dtype) -> None:
    x = drawn(40, 7, dtype=torch.float32).to(dtype) * 5 + 100
    before, exact, scale = x.clone(), x.numpy().astype(np.float64), feature_scale(x)
    expected = 2 / np.pi * np.arctan((exact - exact.mean()) / exact.std())
    result = scale.normalize(x)
    assert result.dtype == dtype
    np.testing.assert_allclose(result.numpy(), expected, rtol=torch.finfo(dtype).eps * 2, atol=0)
    assert scale.mean == pytest.approx(exact.mean(), rel=1e-14)
    assert scale.std == pytest.approx(exact.std(), rel=1e-12)
    kept = result.clone()
    scale.denormalize(result)
    assert torch.equal(x, before)
    assert torch.equal(result, kept)


@pytest.mark.parametrize("outlier", [-1e30, 1e30])
def test_range_is_open_even_for_outliers(outlier: float) -> None:
    x = torch.zeros(100, 100)
    x[3, 4] = outlier
    result = normalized(x)
    assert -1 < result.min() < result.max() < 1
    assert result.abs().argmax() == 304


@DTYPES
@pytest.mark.parametrize("value", [0.0, 0.1, -7.3])
def test_constant_features_are_refused(value: float, dtype: torch.dtype) -> None:
    with pytest.raises(DataError, match="features"):
        feature_scale(torch.full((1000, 302), value, dtype=dtype))


def test_the_bits_are_those_of_the_first_release() -> None:
    x = torch.tensor([[0.0, 1.0, -2.5, 0.0], [3.25, 0.0, 0.0, 0.1], [0.0, -0.7, 12.0, 1e-3]])
    assert normalized(x).view(torch.int32).tolist() == [
        [-1102757813, -1131515084, -1090390971, -1102757813],
        [1051943489, -1102757813, -1102757813, -1103875492],
        [-1102757813, -1097195532, 1062026372, -1102768903],
    ]


@pytest.mark.parametrize("at_a_time", [1, 7, 100])
def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch, at_a_time: int) -> None:
    x = drawn(30, 7, dtype=torch.float32) * 3
    x[::2] = 0
    scale = feature_scale(x)
    y, back = scale.normalize(x), scale.denormalize(scale.normalize(x))
    monkeypatch.setattr(normalize, "VALUES_AT_A_TIME", at_a_time)
    assert torch.equal(scale.normalize(x), y)
    assert torch.equal(scale.denormalize(y), back)
    torch.testing.assert_close(normalized(x), y)


scales = st.builds(FeatureScale, mean=st.floats(-100, 100), std=st.floats(1e-3, 1e3))


@given(scales, st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=20))
def test_a_raw_value_comes_back(scale: FeatureScale, deviations: list[float]) -> None:
    exact = torch.tensor([deviations], dtype=torch.float64) * scale.std + scale.mean
    for dtype in (torch.float32, torch.float64):
        x = exact.to(dtype)
        back = scale.denormalize(scale.normalize(x))
        assert back.dtype == dtype
        t = (x.double() - scale.mean) / scale.std
        eps = torch.finfo(dtype).eps
        # The 2: rounding happens on the way there and on the way back.
        bound = 2 * eps * ((1 + t.square()) * scale.std + x.double().abs() + abs(scale.mean))
        assert ((back.double() - x.double()).abs() <= bound).all()


@given(scales, st.lists(st.floats(-0.9999, 0.9999), min_size=1, max_size=20))
def test_a_normalised_value_comes_back(scale: FeatureScale, values: list[float]) -> None:
    y = torch.tensor([values], dtype=torch.float64)
    # What is lost is what the raw value rounds away beside the mean.
    lost = 4 * (1 + abs(scale.mean) / scale.std)
    for dtype, floor in ((torch.float32, 0.0), (torch.float64, 1e-12)):
        back = scale.normalize(scale.denormalize(y.to(dtype)))
        tolerance = max(floor, torch.finfo(dtype).eps * lost)
        torch.testing.assert_close(back, y.to(dtype), rtol=0, atol=tolerance)


@DTYPES
@pytest.mark.parametrize("value", [1.0, -1.0, -2.0, float("inf"), float("nan"), 1 + 1e-6])
def test_what_is_the_image_of_nothing_is_refused(value: float, dtype: torch.dtype) -> None:
    y = torch.zeros(30, 3, dtype=dtype)
    y[17, 2] = value
    with pytest.raises(DataError, match=r"features: .* at node 17, column 2"):
        FeatureScale(0.0, 1.0).denormalize(y)


@DTYPES
def test_the_largest_value_has_a_raw_value(dtype: torch.dtype) -> None:
    largest = torch.nextafter(torch.ones(1, 1, dtype=dtype), torch.zeros(1, 1, dtype=dtype))
    raw = FeatureScale(0.0, 1.0).denormalize(torch.cat([largest, -largest]))
    assert raw.isfinite().all()
    assert raw[0] > 0.5 / torch.finfo(dtype).eps
    assert raw[1] == -raw[0]


@pytest.mark.parametrize(
    ("mean", "std", "key"), [(0.0, 0.0, "std"), (0.0, float("inf"), "std"), (np.nan, 1.0, "mean")]
)
def test_a_scale_that_is_none_is_refused(mean: float, std: float, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"feature_scale\.{key}="):
        FeatureScale(mean, std)


@pytest.mark.faults
def test_columns_that_carry_nothing_are_named(caplog: pytest.LogCaptureFixture) -> None:
    def told(x: Tensor) -> list[tuple[int, str]]:
        caplog.clear()
        with caplog.at_level(logging.INFO):
            log_columns("mine", x, normalized(x).float())
        return [(record.levelno, record.message) for record in caplog.records]

    x = torch.eye(30)
    assert told(x) == told(drawn(50, 4)) == []  # usual features
    x[:, 3] = 1
    assert told(x) == [(logging.INFO, "dataset=mine: the same at every node: features 3")]
    x[:, :15] = 1
    assert "features 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ..." in told(x)[0][1]
    stamped = drawn(50, 3)
    stamped[:, 1] += 1.7e9
    ((level, message),) = told(stamped)
    assert level == logging.WARNING
    assert "features 0, 1, 2;" in message
