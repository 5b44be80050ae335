import math

import numpy as np
import pytest
import torch

from robust_diffusion.data.normalize import arctan_normalize
from robust_diffusion.errors import DataError


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


def test_order_of_the_features_is_kept() -> None:
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(arctan_normalize(x).flatten().argsort(), x.flatten().argsort())


def test_is_a_bijection() -> None:
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(2)).double()
    back = (arctan_normalize(x) * math.pi / 2).tan() * x.std(correction=0) + x.mean()
    torch.testing.assert_close(back, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_input_is_not_changed(dtype: torch.dtype) -> None:
    x = torch.arange(6, dtype=dtype).reshape(2, 3)
    before = x.clone()
    arctan_normalize(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, -7.3])
def test_constant_features_are_refused(value: float, dtype: torch.dtype) -> None:
    with pytest.raises(DataError, match=f"all equal to {value:g}"):
        arctan_normalize(torch.full((1000, 302), value, dtype=dtype))
