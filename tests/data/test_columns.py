import logging

import pytest
import torch

from robust_diffusion.data.columns import tell_of_columns
from robust_diffusion.data.normalize import arctan_normalize

pytestmark = pytest.mark.faults


def told(x: torch.Tensor, caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.INFO):
        tell_of_columns("mine", x, arctan_normalize(x).float())
    return caplog.messages


def test_usual_features_are_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    assert told(torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), caplog) == []
    assert told(torch.eye(20), caplog) == []


def test_constant_columns_are_named(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.eye(30)
    x[:, 3] = 1
    assert told(x, caplog) == ["dataset=mine: feature 3 is the same at every node"]
    caplog.clear()
    x[:, :15] = 1
    (message,) = told(x, caplog)
    assert message.startswith("dataset=mine: 15 features (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...) are")


def test_columns_that_do_not_survive_are_named(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[:, 1] += 1.7e9
    (message,) = told(x, caplog)
    assert message.startswith("dataset=mine: 3 features (0, 1, 2) have fewer values once normalis")
    assert "subtract the offset" in message
