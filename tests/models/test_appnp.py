import pytest
import torch
from torch import Tensor

from robust_diffusion.models import APPNP, appnp
from robust_diffusion.operators import Graph, spmm
from tests import oracles
from tests.graphs import NODES, random_edges, random_signal
from tests.models.small import build_model, dense_stack, edges


@pytest.mark.parametrize("teleport", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("steps", [0, 1, 3, 10])
def test_equals_the_dense_one(steps: int, teleport: float) -> None:
    edge_index, weight = random_edges()
    model = build_model(APPNP, num_iterations=steps, teleport=teleport)
    local = dense_stack(model, random_signal(), lambda w, x: x @ w.weight.T + w.bias)
    dense = oracles.normalized_adjacency(edge_index, weight, NODES)
    expected = oracles.personalized_pagerank(local, dense, teleport, steps)
    torch.testing.assert_close(model(random_signal(), edge_index, weight), expected)


@pytest.mark.parametrize("teleport", [0.01, 0.3])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_grbs_variant_is_a_lazy_walk(steps: int, teleport: float) -> None:
    edge_index, weight = random_edges()
    model = build_model(APPNP, num_iterations=steps, teleport=teleport, variant="grb")
    local = dense_stack(model, random_signal(), lambda w, x: x @ w.weight.T + w.bias)
    dense = oracles.normalized_adjacency(edge_index, weight, NODES)
    lazy = (1 - teleport) * dense + teleport * torch.eye(NODES, dtype=torch.float64)
    expected = torch.linalg.matrix_power(lazy, steps) @ local.relu()
    torch.testing.assert_close(model(random_signal(), edge_index, weight), expected)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The edge weights of every step of propagation so far."""
    seen: list[Tensor] = []

    def watched(weight: Tensor, z: Tensor, graph: Graph) -> Tensor:
        seen.append(weight)
        return spmm(weight, z, graph)

    monkeypatch.setattr(appnp, "spmm", watched)
    return seen


def test_an_edge_that_grbs_variant_drops_stays_dropped(seen: list[Tensor]) -> None:
    given = (random_signal(), edges()[0])
    model = build_model(APPNP, edge_dropout=0.3, variant="grb")
    model(*given)
    model.train()(*given)
    whole, dropped = seen[0], seen[3:]
    assert all(torch.equal(weight, whole) for weight in seen[:3])
    before = whole
    for weight in dropped:
        assert ((weight == before) | (weight == 0)).all()
        assert int((weight == 0).sum()) > int((before == 0).sum())
        before = weight


def test_grbs_variant_drops_logits_in_training() -> None:
    model = build_model(APPNP, num_iterations=0, variant="grb", dropout=0.9).train()
    given = (random_signal(), edges()[0])
    kept = torch.cat([model(*given).flatten() for _ in range(20)])
    assert (kept >= 0).all()
    assert (kept == 0).double().mean() > 0.8


def test_each_training_step_drops_other_edges(seen: list[Tensor]) -> None:
    given = (random_signal(), edges()[0])
    model = build_model(APPNP, edge_dropout=0.5)
    model(*given)
    model.train()(*given)
    whole, dropped = seen[0], seen[3:]
    assert len(dropped) == 3
    assert all(torch.equal(weight, whole) for weight in seen[:3])
    for weight in dropped:
        assert ((weight == 0) | (weight == 2 * whole)).all()
        assert 0 < int((weight == 0).sum()) < weight.numel()
    assert not torch.equal(dropped[0], dropped[1])
