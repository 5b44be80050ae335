import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.models import APPNP, GAT, GCN, GIN, GraphSAGE, RobustGCN
from robust_diffusion.models.edge_values import OnEdgeValues, reads_edge_values
from tests.graphs import random_signal
from tests.models.small import build_model, edges

READING = [GCN, RobustGCN, APPNP, GIN]


def numbers(edge_index: Tensor) -> Tensor:
    return torch.arange(edge_index.size(1)).double()


@pytest.mark.parametrize("cls", READING)
def test_the_values_are_the_weights(cls: type[nn.Module]) -> None:
    model, edge_index = build_model(cls), edges()[0]
    assert reads_edge_values(model)
    expected = model(random_signal(), edge_index, numbers(edge_index))
    valued = OnEdgeValues(model, numbers).eval()
    assert torch.equal(valued(random_signal(), edge_index), expected)
    assert not torch.allclose(model(random_signal(), edge_index), expected)


def test_a_weight_multiplies_the_value() -> None:
    model, (edge_index, weight) = build_model(GCN), edges(weighted=True)
    assert weight is not None
    expected = model(random_signal(), edge_index, weight * numbers(edge_index))
    assert torch.equal(OnEdgeValues(model, numbers)(random_signal(), edge_index, weight), expected)


def test_values_at_hand_are_not_looked_up() -> None:
    def never(_: Tensor) -> Tensor:
        raise AssertionError("looked up")

    model, edge_index = build_model(GIN), edges()[0]
    found = OnEdgeValues(model, never)(random_signal(), edge_index, edge_values=numbers(edge_index))
    assert torch.equal(found, model(random_signal(), edge_index, numbers(edge_index)))


@pytest.mark.parametrize("cls", [GraphSAGE, GAT])
def test_models_that_set_the_values_to_1_do_not_read_them(cls: type[nn.Module]) -> None:
    assert not reads_edge_values(build_model(cls))
