import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from torch.autograd import gradcheck, gradgradcheck

from robust_diffusion.operators import (
    Graph,
    edge_cosine,
    edge_dot,
    edge_softmax,
    edge_squared_distance,
    edges,
    segment_sum,
)
from tests import oracles
from tests.graphs import NODES, random_graph, random_signal, with_weight
from tests.operators.test_graph import edge_lists


def dense_of(values: torch.Tensor, graph: Graph) -> torch.Tensor:
    return oracles.adjacency(graph.edge_index, values, graph.num_nodes)


def random_scores(graph: Graph, heads: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(graph.num_edges, heads, generator=generator, dtype=torch.float64)


def test_softmax_equals_the_dense_one() -> None:
    graph = random_graph()
    scores = random_scores(graph)
    probabilities = edge_softmax(scores, graph)
    for head in range(2):
        expected = oracles.softmax(dense_of(scores[:, head], graph), dense_of(graph.weight, graph))
        torch.testing.assert_close(dense_of(probabilities[:, head], graph), expected)


@settings(max_examples=30)
@given(edge_index=edge_lists)
def test_softmax_sums_to_one_where_an_edge_arrives(edge_index: torch.Tensor) -> None:
    graph = Graph.from_edge_index(edge_index, num_nodes=NODES, self_loops=False)
    probabilities = edge_softmax(100 * torch.randn(graph.num_edges, 2), graph)
    assert (probabilities >= 0).all()
    arrives = torch.bincount(graph.dst, minlength=NODES).clamp_max(1).float()
    torch.testing.assert_close(segment_sum(probabilities, graph)[:, 0], arrives)


def test_softmax_gradcheck_in_scores_and_graph_weights() -> None:
    """Of an edge of weight 0, too, whose gradient is the effect of adding it."""
    graph = random_graph()
    scores = random_scores(graph).requires_grad_()
    weight = graph.weight.clone()
    weight[4] = 0
    weight.requires_grad_()
    assert gradcheck(lambda s, w: edge_softmax(s, with_weight(graph, w)), (scores, weight))
    (gradient,) = torch.autograd.grad(
        (edge_softmax(scores, with_weight(graph, weight)) * scores).sum(), weight
    )
    assert gradient[4] != 0


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_softmax_weight_zero_is_the_same_as_no_edge(scale: float) -> None:
    graph = random_graph()
    # The largest scores are on the removed edges.
    gone = torch.arange(graph.num_edges) % 3 == 0
    gone &= graph.src != graph.dst
    scores = random_scores(graph) + scale * gone[:, None]
    zeroed = edge_softmax(scores, with_weight(graph, graph.weight * ~gone))
    removed = Graph(graph.src[~gone], graph.dst[~gone], graph.weight[~gone], NODES)
    assert gone.any()
    assert (zeroed[gone] == 0).all()
    torch.testing.assert_close(zeroed[~gone], edge_softmax(scores[~gone], removed))


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_softmax_and_gradients_are_finite_where_all_weights_are_zero(scale: float) -> None:
    graph = random_graph()
    weight = (graph.weight * (graph.dst > 2)).requires_grad_()
    scores = (scale * random_scores(graph)).requires_grad_()
    probabilities = edge_softmax(scores, with_weight(graph, weight))
    (1e3 * probabilities.square()).sum().backward()
    assert (probabilities[graph.dst <= 2] == 0).all()
    for tensor in (probabilities, scores.grad, weight.grad):
        assert tensor is not None
        assert tensor.isfinite().all()


def test_dot_equals_the_dense_one_per_head() -> None:
    graph = random_graph()
    key = random_signal(1, 6).view(NODES, 2, 3).requires_grad_()
    query = random_signal(2, 6).view(NODES, 2, 3).requires_grad_()
    for head in range(2):
        dense = key[:, head] @ query[:, head].T
        found = edge_dot(key, query, graph)[:, head]
        torch.testing.assert_close(found, dense[graph.dst, graph.src])
    assert gradcheck(lambda k, q: edge_dot(k, q, graph), (key, query))


@pytest.mark.parametrize("channels", [1, 40])
def test_cosine_equals_torchs_own_however_many_columns_are_held(
    channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, x = random_graph(), random_signal(0, channels)
    expected = F.cosine_similarity(x[graph.dst], x[graph.src], dim=1)
    for held in (edges.VALUES_AT_A_TIME, 1):
        monkeypatch.setattr(edges, "VALUES_AT_A_TIME", held)
        torch.testing.assert_close(edge_cosine(x, graph), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e15])
def test_cosine_and_gradient_are_finite_at_any_scale(scale: float, dtype: torch.dtype) -> None:
    graph, x = random_graph(symmetric=True, weighted=False), scale * random_signal()
    x = x.to(dtype).requires_grad_()
    graph = Graph(graph.src, graph.dst, graph.weight.to(dtype), NODES)
    cosine = edge_cosine(x, graph)
    cosine.sum().backward()
    assert (cosine.abs() <= 1 + 1e-5).all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_squared_distance_equals_the_dense_one() -> None:
    graph, z = random_graph(), random_signal()
    dense = torch.cdist(z, z).square()
    torch.testing.assert_close(edge_squared_distance(z, graph), dense[graph.dst, graph.src])
    assert gradcheck(lambda x: edge_squared_distance(x, graph), (z.requires_grad_(),))


def test_squared_distance_does_not_cancel_on_a_smooth_signal() -> None:
    graph = random_graph()
    z = (1e4 + 1e-2 * random_signal()).float()
    exact = (z.double()[graph.src] - z.double()[graph.dst]).square().sum(-1)
    torch.testing.assert_close(edge_squared_distance(z, graph).double(), exact)


def test_strided_inputs_and_expanded_gradients() -> None:
    graph = random_graph()
    z = random_signal(0, 6).T.contiguous().T
    dense = z.clone().requires_grad_()
    z.requires_grad_()
    heads = z.unflatten(1, (2, 3))
    assert not heads.is_contiguous()
    (edge_squared_distance(z, graph).sum() + edge_dot(heads, heads, graph).sum()).backward()
    difference = dense[graph.src] - dense[graph.dst]
    (difference.square().sum() + (dense[graph.src] * dense[graph.dst]).sum()).backward()
    torch.testing.assert_close(z.grad, dense.grad)


def test_plain_softmax_equals_the_fast_one_and_can_be_differentiated_twice() -> None:
    graph = random_graph()
    scores = random_scores(graph).requires_grad_()
    weight = graph.weight.clone()
    weight[::4] = 0
    weight.requires_grad_()

    def plain(scores: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return edge_softmax(scores, with_weight(graph, weight), twice_differentiable=True)

    fast = edge_softmax(scores, with_weight(graph, weight))
    torch.testing.assert_close(plain(scores, weight), fast)
    readout = random_scores(graph)
    for found, expected in zip(
        *[
            torch.autograd.grad((p * readout).sum(), (scores, weight), retain_graph=True)
            for p in (plain(scores, weight), fast)
        ],
        strict=True,
    ):
        torch.testing.assert_close(found, expected)
    assert gradgradcheck(plain, (scores, weight))
