import gc
import weakref

import pytest
import torch
from torch import Tensor

from robust_diffusion.models import GCNSVD, gcn_svd
from robust_diffusion.operators import Graph, LowRank, truncated_svd
from tests import oracles
from tests.graphs import NODES, random_edges, random_signal
from tests.models.small import build_model, dense_of, dense_stack, edges


def dense_logits(model: torch.nn.Module, x: Tensor, dense: Tensor) -> Tensor:
    """As GRB has it: the matrix that is truncated has self-loops, and the result gets others."""
    matrix = oracles.truncated(dense, model.rank) + torch.eye(NODES, dtype=torch.float64)
    degree = matrix.sum(1)
    scale = torch.where(degree > 0, degree.abs() ** -0.5, 0.0)
    normalized = scale[:, None] * matrix * scale[None, :]
    return dense_stack(model, x, lambda w, x: normalized @ (x @ w.weight.T + w.bias))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rank", [1, 3, NODES, 50])
@pytest.mark.parametrize("symmetric", [True, False])
def test_equals_the_dense_one(symmetric: bool, rank: int, weighted: bool) -> None:
    model = build_model(GCNSVD, rank=rank)
    edge_index, weight = random_edges(symmetric=symmetric)
    given = weight if weighted else None
    expected = dense_logits(model, random_signal(), dense_of(edge_index, given))
    torch.testing.assert_close(model(random_signal(), edge_index, given), expected)


def below_zero() -> tuple[Tensor, Tensor]:
    """Edges whose truncated matrix has rows of a sum below 0, which has no square root."""
    weight = torch.tensor([100.0, 1.0, 100.0, 100.0, 100.0], dtype=torch.float64)
    return torch.tensor([[2, 3, 0, 3, 1], [0, 1, 2, 2, 3]]), weight


def test_rows_with_negative_sums_are_left_out() -> None:
    edge_index, weight = below_zero()
    dense = dense_of(edge_index, weight)
    assert (oracles.truncated(dense, 2).sum(1) + 1).min() < -1
    model = build_model(GCNSVD, rank=2)
    inputs = [random_signal().requires_grad_(), weight.requires_grad_()]
    logits = model(inputs[0], edge_index, inputs[1])
    torch.testing.assert_close(logits, dense_logits(model, random_signal(), dense))
    for gradient in torch.autograd.grad(logits.sum(), inputs):
        assert gradient.isfinite().all()


def test_in_grbs_variant_negative_sums_give_nan() -> None:
    edge_index, weight = below_zero()
    model = build_model(GCNSVD, rank=2, negative_degree="grb")
    assert model(random_signal(), edge_index, weight).isnan().all()
    fine = random_edges(symmetric=True)
    expected = build_model(GCNSVD, rank=NODES)(random_signal(), *fine)
    model = build_model(GCNSVD, rank=NODES, negative_degree="grb")
    assert torch.equal(model(random_signal(), *fine), expected)


@pytest.fixture
def decomposed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ranks of the decompositions made so far."""
    ranks: list[int] = []

    def counted(graph: Graph, rank: int) -> LowRank:
        ranks.append(rank)
        return truncated_svd(graph, rank)

    monkeypatch.setattr(gcn_svd, "truncated_svd", counted)
    return ranks


def test_an_unweighted_graph_is_decomposed_once(decomposed: list[int]) -> None:
    edge_index, _ = edges()
    x, model, other = random_signal(), build_model(GCNSVD, rank=2), build_model(GCNSVD, rank=3)
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


def test_weights_are_decomposed_every_time(decomposed: list[int]) -> None:
    edge_index, weight = random_edges()
    model, x = build_model(GCNSVD, rank=2), random_signal()
    first = model(x, edge_index, weight)
    assert torch.equal(model(x, edge_index, weight), first)
    assert decomposed == [2, 2]
    assert not torch.equal(model(x, edge_index, 2 * weight), first)


def test_factors_vanish_with_their_graph(decomposed: list[int]) -> None:
    edge_index, _ = edges()
    model = build_model(GCNSVD, rank=2)
    model(random_signal(), edge_index)
    kept = gcn_svd._FACTORS
    indexes = Graph.from_edge_index(edge_index, num_nodes=NODES).indexes
    assert indexes in kept
    factors = weakref.ref(next(iter(kept[indexes].values())))
    del indexes, edge_index
    gc.collect()
    assert factors() is None
    assert decomposed == [2]
