import pytest
import torch

from robust_diffusion.models import MLP
from tests.graphs import random_signal
from tests.models.small import build_model, dense_stack, edges


@pytest.mark.parametrize("num_layers", [1, 3])
def test_equals_the_formula(num_layers: int) -> None:
    model = build_model(MLP, num_layers=num_layers)
    expected = dense_stack(model, random_signal(), lambda w, x: x @ w.weight.T + w.bias)
    torch.testing.assert_close(model(random_signal(), edges()[0]), expected)
