import pytest
import torch
from torch_geometric.nn import GCNConv

from robust_diffusion.models import GCN, MLP
from tests import oracles
from tests.graphs import CHANNELS, NODES, random_edges, random_signal
from tests.models.small import build_model, dense_stack, edges


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_equals_pyg_with_its_own_normalization(layer_norm: bool, weighted: bool) -> None:
    model, (edge_index, weight) = build_model(GCN, layer_norm=layer_norm), edges(weighted=weighted)

    def pyg(conv: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        reference = GCNConv(conv.in_channels, conv.out_channels).double()
        reference.load_state_dict(conv.state_dict())
        return reference(x, edge_index, weight)  # type: ignore[no-any-return]

    expected = dense_stack(model, random_signal(), pyg)
    torch.testing.assert_close(model(random_signal(), edge_index, weight), expected)


def test_given_degrees_normalize_before_the_cut() -> None:
    edge_index, weight = random_edges(symmetric=True)
    whole = oracles.normalized_adjacency(edge_index, weight, NODES)
    degree = oracles.adjacency(edge_index, weight, NODES, self_loops=True).sum(1)
    kept = 5
    inside = (edge_index < kept).all(0)
    assert not inside.all()
    cut, x, model = edge_index[:, inside], random_signal()[:kept], build_model(GCN)
    expected = dense_stack(
        model, x, lambda conv, x: whole[:kept, :kept] @ x @ conv.lin.weight.T + conv.bias
    )
    torch.testing.assert_close(model(x, cut, weight[inside], degree[:kept]), expected)
    own = model(x, cut, weight[inside])
    assert (own - expected).abs().max() > 1e-3


@pytest.mark.parametrize("cls", [GCN, MLP])
def test_it_starts_as_in_grb(cls: type[GCN | MLP]) -> None:
    torch.manual_seed(0)
    for layer in cls(CHANNELS, 400, 300, num_layers=2).layers:
        weight = getattr(layer, "lin", layer).weight
        spread = 2 / sum(weight.shape) ** 0.5  # sqrt(2), the gain, times that of Xavier
        assert weight.std().item() == pytest.approx(spread, rel=0.05)
        assert cls is MLP or torch.equal(layer.bias, torch.zeros_like(layer.bias))
