"""Random draws, memory and initial values of baselines."""

from typing import Any

import pytest
import torch
from torch import Tensor

from robust_diffusion.errors import ConfigError
from robust_diffusion.models import (
    APPNP,
    GCN,
    GCNSVD,
    GIN,
    MLP,
    RobustGCN,
    appnp,
    convs,
    gcn_svd,
)
from robust_diffusion.models.convs import SAGEConv
from robust_diffusion.models.stack import layer_widths
from robust_diffusion.operators import Graph, spmm, truncated_svd
from tests.graphs import CHANNELS, random_graph, random_signal
from tests.models.small import build_model, edges


@pytest.fixture
def given() -> tuple[Tensor, Tensor]:
    return random_signal(), edges()[0]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The edge weights of every step of propagation so far."""
    seen: list[Tensor] = []

    def watched(weight: Tensor, z: Tensor, graph: Graph) -> Tensor:
        seen.append(weight)
        return spmm(weight, z, graph)

    monkeypatch.setattr(appnp, "spmm", watched)
    return seen


@pytest.mark.parametrize("variant", ["original", "grb"])
def test_appnp_drops_edges_in_training(variant: str, seen: list[Tensor], given: Any) -> None:
    """Others in each step, of what is left; those that GRB's variant drops stay dropped."""
    model = build_model(APPNP, edge_dropout=0.5, variant=variant)
    model(*given)
    model.train()(*given)
    whole, dropped = seen[0], seen[3:]
    assert len(dropped) == 3
    assert all(torch.equal(weight, whole) for weight in seen[:3])
    before = whole
    for weight in dropped:
        kept = 2 * whole if variant == "original" else before
        assert ((weight == 0) | (weight == kept)).all()
        assert (before == 0).sum() < (weight == 0).sum() < weight.numel() or variant == "original"
        assert not torch.equal(weight, before)
        before = weight


def test_grbs_appnp_drops_logits_in_training(given: Any) -> None:
    model = build_model(APPNP, num_iterations=0, variant="grb", dropout=0.9).train()
    kept = torch.cat([model(*given).flatten() for _ in range(20)])
    assert (kept >= 0).all()
    assert (kept == 0).double().mean() > 0.8


@pytest.mark.parametrize("cls", [GCN, MLP])
def test_layers_start_as_in_grb(cls: type[GCN | MLP]) -> None:
    torch.manual_seed(0)
    for layer in cls(CHANNELS, 400, 300, num_layers=2).layers:
        weight = getattr(layer, "lin", layer).weight
        spread = 2 / sum(weight.shape) ** 0.5  # sqrt(2), the gain, times that of Xavier
        assert weight.std().item() == pytest.approx(spread, rel=0.05)
        assert cls is MLP or torch.equal(layer.bias, torch.zeros_like(layer.bias))


def test_running_moments_of_gin_are_learned_in_training_only(given: Any) -> None:
    model = build_model(GIN)
    moments = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for training in (False, True):
        model.train(training)(*given)
        same = [torch.equal(buffer, moments[name]) for name, buffer in model.named_buffers()]
        assert set(same) == {not training}
    assert all(layer.eps == 0 for layer in GIN(5, 6, 3).layers[:-1])


@pytest.mark.parametrize("project_root", [False, True])
def test_pooling_in_parts_changes_nothing(
    project_root: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    conv = SAGEConv(CHANNELS, 2, project_root=project_root).double()
    graph, x = random_graph(), random_signal()
    whole = conv(x, graph)
    monkeypatch.setattr(convs, "POOLED_AT_A_TIME", 3)  # does not divide the number of channels
    torch.testing.assert_close(conv(x, graph), whole, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        conv.lin.bias.fill_(-100)  # every projection is cut to 0
    (gradient,) = torch.autograd.grad(conv(x.requires_grad_(), graph).sum(), x)
    assert gradient.isfinite().all()


@pytest.fixture
def decomposed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ranks of the decompositions made so far."""
    ranks: list[int] = []

    def counted(graph: Graph, rank: int) -> Any:
        ranks.append(rank)
        return truncated_svd(graph, rank)

    monkeypatch.setattr(gcn_svd, "truncated_svd", counted)
    return ranks


def test_an_unweighted_graph_is_decomposed_once(decomposed: list[int], given: Any) -> None:
    x, edge_index = given
    model, other = build_model(GCNSVD, rank=2), build_model(GCNSVD, rank=3)
    with torch.inference_mode():
        first = model(x, edge_index)
    model.train()(x, edge_index).sum().backward()
    assert torch.equal(model.eval()(x, edge_index), first)
    assert decomposed == [2]
    other(x, edge_index)
    assert decomposed == [2, 3]
    model.float()(x.float(), edge_index)
    assert decomposed == [2, 3, 2]
    edge_index[:, 0] = edge_index[:, 1]
    assert not torch.equal(model(x.float(), edge_index), first.float())
    assert decomposed == [2, 3, 2, 2]


def test_only_training_draws_in_robust_gcn_unless_asked_to(given: Any) -> None:
    plain = build_model(RobustGCN, dropout=0.0)
    drawing = build_model(RobustGCN, dropout=0.0, sample_at_test=True)
    state = torch.get_rng_state()
    assert torch.equal(plain(*given), plain(*given))
    assert torch.equal(torch.get_rng_state(), state)
    for model in (drawing, plain.train()):
        assert (model(*given) - model(*given)).abs().max() > 1e-3


def test_gradient_of_robust_gcn_is_finite_where_the_variance_is_zero(given: Any) -> None:
    model = build_model(RobustGCN).train()
    with torch.no_grad():
        model.variance[-1].bias -= 1e3
    model(*given).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("hidden", "num_layers", "expected"),
    [
        (8, 1, [5, 3]),
        (8, 4, [5, 8, 8, 8, 3]),
        ([7, 9], 3, [5, 7, 9, 3]),
        *[(hidden, 3, None) for hidden in ([7], [7, 8, 9], [])],
    ],
)
def test_widths(hidden: Any, num_layers: int, expected: list[int] | None) -> None:
    if expected is None:
        with pytest.raises(ConfigError, match=r"model\.hidden_channels="):
            layer_widths(5, hidden, 3, num_layers)
    else:
        assert layer_widths(5, hidden, 3, num_layers) == expected


@pytest.mark.parametrize("cls", [MLP, GCN])
def test_normalised_at_each_entry_and_active_between_the_layers(cls: Any, given: Any) -> None:
    model, seen = cls(CHANNELS, 8, 3, layer_norm=True).double(), []
    for layer in model.layers:
        layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model.activation = torch.exp
    assert (model.eval()(*given) < 0).any()  # nothing after the last layer
    for x in seen:
        assert x.mean(1).abs().max() < 1e-9
        assert x.var(1, correction=0).max() <= 1 + 1e-9
    alone = cls(CHANNELS, [], 3, num_layers=1, dropout=0.9).double()
    assert torch.equal(alone.train()(*given), alone.eval()(*given))
