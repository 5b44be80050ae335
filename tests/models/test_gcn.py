import io

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from robust_diffusion.errors import ConfigError
from robust_diffusion.models import GCN
from robust_diffusion.models.gcn import symmetric_normalization
from tests import oracles
from tests.graphs import CHANNELS, NODES, random_edges, random_signal

CLASSES = 3


def build(**options: object) -> GCN:
    torch.manual_seed(0)
    return GCN(CHANNELS, 6, CLASSES, **options).double().eval()


def edges(*, weighted: bool = False) -> tuple[Tensor, Tensor | None]:
    edge_index, weight = random_edges(symmetric=True)
    return edge_index, weight if weighted else None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_equals_pyg_with_its_own_normalization(num_layers: int, weighted: bool) -> None:
    model, (edge_index, weight) = build(num_layers=num_layers), edges(weighted=weighted)
    x = expected = random_signal()
    for i, conv in enumerate(model.convs):
        reference = GCNConv(conv.in_channels, conv.out_channels).double()
        reference.load_state_dict(conv.state_dict())
        expected = reference(expected if i == 0 else expected.relu(), edge_index, weight)
    torch.testing.assert_close(model(x, edge_index, weight), expected)


def test_normalization_equals_the_dense_one() -> None:
    edge_index, weight = random_edges(symmetric=True)
    normalized = symmetric_normalization(edge_index, weight, num_nodes=NODES, dtype=torch.float64)
    torch.testing.assert_close(
        oracles.adjacency(*normalized, NODES),
        oracles.normalized_adjacency(edge_index, weight, NODES),
    )


def test_foreign_degrees_are_the_whole_graph_normalized_then_cut() -> None:
    edge_index, weight = random_edges(symmetric=True)
    whole = oracles.normalized_adjacency(edge_index, weight, NODES)
    degree = oracles.adjacency(edge_index, weight, NODES, self_loops=True).sum(1)
    kept = 5
    inside = (edge_index < kept).all(0)
    assert not inside.all()
    cut = edge_index[:, inside]
    x, model = random_signal()[:kept], build(num_layers=2)
    hidden = (whole[:kept, :kept] @ x @ model.convs[0].lin.weight.T + model.convs[0].bias).relu()
    expected = whole[:kept, :kept] @ hidden @ model.convs[1].lin.weight.T + model.convs[1].bias
    torch.testing.assert_close(model(x, cut, weight[inside], degree[:kept]), expected)
    own = model(x, cut, weight[inside])
    assert (own - expected).abs().max() > 1e-3


def test_own_degrees_given_explicitly_change_nothing() -> None:
    edge_index, weight = random_edges(symmetric=True)
    degree = oracles.adjacency(edge_index, weight, NODES, self_loops=True).sum(1)
    model, x = build(), random_signal()
    torch.testing.assert_close(model(x, edge_index, weight, degree), model(x, edge_index, weight))


def test_every_parameter_gets_a_gradient_and_survives_a_checkpoint() -> None:
    model, (edge_index, _) = build(layer_norm=True, dropout=0.0).train(), edges()
    x, labels = random_signal(), torch.arange(NODES) % CLASSES
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    nn.functional.cross_entropy(model(x, edge_index), labels).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name
    optimizer.step()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    restored = build(layer_norm=True)
    restored.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(restored(x, edge_index), model.eval()(x, edge_index))


def test_no_relu_or_dropout_after_the_last_layer() -> None:
    model, (edge_index, _), x = build(num_layers=1, dropout=0.9), edges(), random_signal()
    logits = model.train()(x, edge_index)
    assert (logits < 0).any()
    assert torch.equal(logits, model.eval()(x, edge_index))


def test_dropout_acts_in_training_only() -> None:
    model, (edge_index, _), x = build(), edges(), random_signal()
    assert torch.equal(model(x, edge_index), model(x, edge_index))
    model.train()
    assert not torch.equal(model(x, edge_index), model(x, edge_index))


def test_layer_norm_changes_the_output() -> None:
    (edge_index, _), x = edges(), random_signal()
    assert not torch.allclose(build()(x, edge_index), build(layer_norm=True)(x, edge_index))


def test_logits_are_differentiable_in_the_edge_weights() -> None:
    edge_index, weight = random_edges(symmetric=True)
    weight[0] = 0
    weight.requires_grad_()
    model, x = build(), random_signal()
    assert torch.autograd.gradcheck(lambda w: model(x, edge_index, w + 0.1), (weight,))
    model(x, edge_index, weight).square().sum().backward()
    assert weight.grad is not None
    assert weight.grad.isfinite().all()
    assert weight.grad[0] != 0


def test_nodes_without_edges_are_finite() -> None:
    none = torch.zeros(2, 0, dtype=torch.long)
    assert build()(random_signal(), none).isfinite().all()


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_bad_dropout(dropout: float) -> None:
    with pytest.raises(ConfigError, match=rf"model\.dropout={dropout}"):
        build(dropout=dropout)
