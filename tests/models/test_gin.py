import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.models import GIN
from tests import oracles
from tests.graphs import random_signal
from tests.models.small import build_model, dense_of, dense_stack, edges


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_norm": False},
        {"layer_norm": False},
        {"num_layers": 1},
        {"num_layers": 4},
        {"hidden_channels": 3},  # narrower than the features, so that they are projected first
    ],
    ids=str,
)
def test_equals_the_dense_one(options: dict[str, object], weighted: bool) -> None:
    model, given = build_model(GIN, **options), edges(weighted=weighted)
    dense = dense_of(*given, self_loops=False)

    def apply(layer: nn.Module, x: Tensor) -> Tensor:
        if isinstance(layer, nn.Sequential):  # the classifier
            first, _, _, second = layer
            return (x @ first.weight.T + first.bias).relu() @ second.weight.T + second.bias
        first, _, second, norm = layer.nn
        x = (1 + layer.eps) * x + dense @ x
        x = (x @ first.weight.T + first.bias).relu() @ second.weight.T
        x = x if second.bias is None else x + second.bias
        return oracles.batch_norm(x, norm) if isinstance(norm, nn.BatchNorm1d) else x

    expected = dense_stack(model, random_signal(), apply)
    torch.testing.assert_close(model(random_signal(), *given), expected)


def test_epsilon_is_learned_and_starts_at_zero() -> None:
    names = {name for name, _ in build_model(GIN).named_parameters() if name.endswith("eps")}
    assert names == {"layers.0.eps", "layers.1.eps"}
    assert all(layer.eps == 0 for layer in GIN(5, 6, 3).layers[:-1])


def test_running_moments_are_learned_in_training_only() -> None:
    model, (edge_index, _) = build_model(GIN), edges()
    moments = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model(random_signal(), edge_index)
    assert all(torch.equal(buffer, moments[name]) for name, buffer in model.named_buffers())
    model.train()(random_signal(), edge_index)
    assert not any(torch.equal(buffer, moments[name]) for name, buffer in model.named_buffers())
