import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from robust_diffusion.data import normalize
from robust_diffusion.data.normalize import FeatureScale, arctan_normalize, feature_scale
from robust_diffusion.errors import ConfigError, DataError


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_formula_in_float64(dtype: torch.dtype) -> None:
    x = torch.randn(40, 7, generator=torch.Generator().manual_seed(0)).to(dtype) * 5 + 100
    exact = x.numpy().astype(np.float64)
    expected = 2 / np.pi * np.arctan((exact - exact.mean()) / exact.std())
    result = arctan_normalize(x)
    assert result.dtype == dtype
    np.testing.assert_allclose(result.numpy(), expected, rtol=torch.finfo(dtype).eps * 2, atol=0)


@pytest.mark.parametrize("outlier", [-1e30, 1e30])
def test_range_is_open_even_for_outliers(outlier: float) -> None:
    x = torch.zeros(100, 100)
    x[3, 4] = outlier
    result = arctan_normalize(x)
    assert -1 < result.min() < result.max() < 1
    assert result.abs().argmax() == 304


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_input_is_not_changed(dtype: torch.dtype) -> None:
    x = torch.arange(6, dtype=dtype).reshape(2, 3)
    before = x.clone()
    scale, y = feature_scale(x), arctan_normalize(x)
    scale.normalize(x)
    assert torch.equal(x, before)
    before = y.clone()
    scale.denormalize(y)
    assert torch.equal(y, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, -7.3])
def test_constant_features_are_refused(value: float, dtype: torch.dtype) -> None:
    with pytest.raises(DataError, match=f"all equal to {value:g}"):
        arctan_normalize(torch.full((1000, 302), value, dtype=dtype))


def test_the_bits_are_those_of_the_first_release() -> None:
    x = torch.tensor([[0.0, 1.0, -2.5, 0.0], [3.25, 0.0, 0.0, 0.1], [0.0, -0.7, 12.0, 1e-3]])
    assert arctan_normalize(x).view(torch.int32).tolist() == [
        [-1102757813, -1131515084, -1090390971, -1102757813],
        [1051943489, -1102757813, -1102757813, -1103875492],
        [-1102757813, -1097195532, 1062026372, -1102768903],
    ]


@pytest.mark.parametrize("at_a_time", [1, 7, 100])
def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch, at_a_time: int) -> None:
    x = torch.randn(30, 7, generator=torch.Generator().manual_seed(3)) * 3
    x[::2] = 0
    scale = feature_scale(x)
    y, back = scale.normalize(x), scale.denormalize(scale.normalize(x))
    monkeypatch.setattr(normalize, "VALUES_AT_A_TIME", at_a_time)
    assert torch.equal(scale.normalize(x), y)
    assert torch.equal(scale.denormalize(y), back)
    torch.testing.assert_close(arctan_normalize(x), y)


def test_the_scale_is_mean_and_deviation() -> None:
    x = torch.randn(40, 7, generator=torch.Generator().manual_seed(4)) * 5 + 100
    exact = x.double().numpy()
    scale = feature_scale(x)
    assert scale.mean == pytest.approx(exact.mean(), rel=1e-14)
    assert scale.std == pytest.approx(exact.std(), rel=1e-12)
    assert torch.equal(scale.normalize(x), arctan_normalize(x))


scales = st.builds(FeatureScale, mean=st.floats(-100, 100), std=st.floats(1e-3, 1e3))


def graph_of_values(scale: FeatureScale, deviations: list[float]) -> Tensor:
    return torch.tensor([deviations], dtype=torch.float64) * scale.std + scale.mean


@given(scales, st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=20))
def test_a_raw_value_comes_back(scale: FeatureScale, deviations: list[float]) -> None:
    for dtype in (torch.float32, torch.float64):
        x = graph_of_values(scale, deviations).to(dtype)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "value", [1.0, -1.0, 1.5, -2.0, float("inf"), -float("inf"), float("nan"), 1 + 1e-6]
)
def test_what_is_the_image_of_nothing_is_refused(value: float, dtype: torch.dtype) -> None:
    y = torch.zeros(30, 3, dtype=dtype)
    y[17, 2] = value
    shown = y[17, 2].item()
    with pytest.raises(DataError) as caught:
        FeatureScale(0.0, 1.0).denormalize(y)
    assert f"features: {shown} at node 17, column 2 is not inside (-1, 1)" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_refused_value_is_found_in_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalize, "VALUES_AT_A_TIME", 6)
    y = torch.zeros(30, 3)
    y[29, 0] = -1
    with pytest.raises(DataError, match=r"-1\.0 at node 29, column 0"):
        FeatureScale(0.0, 1.0).denormalize(y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_value_has_a_raw_value(dtype: torch.dtype) -> None:
    largest = torch.nextafter(torch.ones(1, 1, dtype=dtype), torch.zeros(1, 1, dtype=dtype))
    raw = FeatureScale(0.0, 1.0).denormalize(torch.cat([largest, -largest]))
    assert raw.isfinite().all()
    assert raw[0] > 0.5 / torch.finfo(dtype).eps
    assert raw[1] == -raw[0]


@pytest.mark.parametrize(
    ("mean", "std", "key"),
    [(0.0, 0.0, "std"), (0.0, float("inf"), "std"), (float("nan"), 1.0, "mean")],
)
def test_a_scale_that_is_none_is_refused(mean: float, std: float, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"feature_scale\.{key}="):
        FeatureScale(mean, std)
