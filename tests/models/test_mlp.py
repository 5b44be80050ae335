import pytest
import torch

from robust_diffusion.models import MLP
from tests.graphs import CHANNELS, NODES, random_signal
from tests.models.small import build_model, dense_stack, edges


@pytest.mark.parametrize("num_layers", [1, 3])
def test_equals_the_formula(num_layers: int) -> None:
    model = build_model(MLP, num_layers=num_layers)
    expected = dense_stack(model, random_signal(), lambda w, x: x @ w.weight.T + w.bias)
    torch.testing.assert_close(model(random_signal(), edges()[0]), expected)


def test_edges_and_other_nodes_change_no_logit() -> None:
    model, x = build_model(MLP), random_signal()
    logits = model(x, torch.zeros(2, 0, dtype=torch.long))
    for weighted in (False, True):
        assert torch.equal(model(x, *edges(weighted=weighted)), logits)
    injected = torch.cat([x, 100 * random_signal(1)])
    everywhere = torch.cartesian_prod(torch.arange(2 * NODES), torch.arange(2 * NODES)).T
    torch.testing.assert_close(model(injected, everywhere)[:NODES], logits)


def test_it_starts_as_in_grb() -> None:
    torch.manual_seed(0)
    model = MLP(CHANNELS, 400, 300, num_layers=2)
    for layer in model.layers:
        spread = 2 / sum(layer.weight.shape) ** 0.5
        assert layer.weight.std().item() == pytest.approx(spread, rel=0.05)
