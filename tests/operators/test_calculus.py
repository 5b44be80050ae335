import math
from dataclasses import replace

import pytest
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.autograd import gradcheck

from robust_diffusion import operators as ops
from tests import oracles
from tests.graphs import NODES, random_edges, random_graph, random_signal, with_weight


@pytest.mark.parametrize("symmetric", [True, False])
def test_equal_the_dense_ones(symmetric: bool) -> None:
    edge_index, weight = random_edges(symmetric=symmetric)
    x = torch.zeros(NODES, 1).double()
    graph, degree = ops.graph_with_degree(x, edge_index, weight)
    dense = oracles.adjacency(edge_index, weight, NODES, self_loops=True)
    inverse = torch.diag(1 / dense.sum(1))
    halves = oracles.normalized_adjacency(edge_index, weight, NODES)
    plain = ops.Graph.from_edge_index(edge_index, num_nodes=NODES, dtype=torch.float64)
    ones = oracles.normalized_adjacency(edge_index, torch.ones_like(weight), NODES)
    assert ops.symmetric_weights(plain) is ops.symmetric_weights(plain)
    for found, expected in (
        (ops.symmetric_weights(plain), ones),
        (ops.symmetric_weights(graph), halves),
        (ops.symmetric_weights(graph, degree), halves),
        (ops.symmetric_weights(graph, degree, order=-1), inverse @ dense @ inverse),
        (ops.mean_weights(graph, degree), inverse @ dense),
    ):
        torch.testing.assert_close(found, expected[graph.dst, graph.src])


KINDS = ["edges", "residual"]


@pytest.fixture(params=[False, True], ids=["no_loops", "loops"])
def graph(request: pytest.FixtureRequest) -> ops.Graph:
    graph = random_graph(1, symmetric=True, self_loops=request.param)
    assert torch.bincount(graph.dst, minlength=NODES).min() > 0
    return graph


def test_operators_equal_the_dense_ones(graph: ops.Graph) -> None:
    z, given = random_signal(), (graph.edge_index, graph.weight, NODES)
    psi = ops.graph_gradient(z, graph)
    torch.testing.assert_close(psi, oracles.gradient_matrix(*given) @ z)
    torch.testing.assert_close(
        ops.graph_divergence(psi, graph), oracles.divergence_matrix(*given) @ psi
    )
    torch.testing.assert_close(ops.graph_laplacian(z, graph), oracles.laplacian_matrix(*given) @ z)


@pytest.mark.parametrize("ceiling", [None, 3.0, 20.0])
@pytest.mark.parametrize("kind", KINDS)
def test_norm_equals_the_dense_one(kind: str, ceiling: float | None) -> None:
    graph, z = random_graph(), random_signal()
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    expected = oracles.gradient_norm(z, dense, kind, 0.1, math.inf if ceiling is None else ceiling)
    actual = ops.gradient_norm(z, graph.weight, graph, kind=kind, floor=0.1, ceiling=ceiling)
    torch.testing.assert_close(actual, expected)
    unbounded = ops.gradient_norm(z, graph.weight, graph, kind=kind, floor=0.1)
    assert torch.equal(actual, unbounded) == (ceiling is None)


@pytest.mark.parametrize("at_a_time", [1, 3, 256])
@pytest.mark.parametrize("self_loops", [True, False])
def test_equals_the_diagonals_of_the_dense_powers(
    self_loops: bool, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops.random_walk, "NODES_AT_A_TIME", at_a_time)
    graph = random_graph(self_loops=self_loops)
    dense = oracles.adjacency(graph.edge_index, graph.weight, NODES)
    found = ops.return_probabilities(graph, 6)
    torch.testing.assert_close(found, oracles.return_probabilities(dense, 6))
    assert (found[:, 0] == 0).all()


@pytest.mark.parametrize("at_a_time", [3, 256])
def test_gradcheck_in_the_weights(at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops.random_walk, "NODES_AT_A_TIME", at_a_time)
    graph = random_graph()
    weight = graph.weight.clone().requires_grad_()
    assert gradcheck(lambda w: ops.return_probabilities(replace(graph, weight=w), 4), weight)


def test_an_edge_of_weight_0_is_none_and_has_a_gradient() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 0, 2, 3, 0], [1, 0, 2, 1, 2, 0, 0, 3]])
    weight = torch.tensor([1.0, 1, 1, 1, 0, 0, 0, 0], dtype=torch.float64, requires_grad=True)
    with_it = ops.Graph.from_edge_index(edges, weight, num_nodes=4)
    without = ops.Graph.from_edge_index(edges[:, :4], num_nodes=4, dtype=torch.float64)
    found = ops.return_probabilities(with_it, 3)
    assert torch.equal(found, ops.return_probabilities(without, 3))
    (gradient,) = torch.autograd.grad(found[:, 2].sum(), weight)  # of triangles
    assert gradient.isfinite().all()
    assert (gradient[4:6] > 0).all()


@pytest.mark.parametrize("at_a_time", [3, 64])
def test_scores_that_are_cut_off_weigh_nothing_and_keep_their_gradient(
    at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops.random_walk, "SCORES_AT_A_TIME", at_a_time)
    graph = random_graph()
    weight = graph.weight.clone().requires_grad_()
    graph = replace(graph, weight=weight)
    matrix = oracles.normalized(oracles.adjacency(graph.edge_index, weight, NODES))
    scores = oracles.personalized_pagerank(torch.eye(NODES).double(), matrix, 0.2, 9)
    few = ops.pagerank_graph(graph, 0.2, 9, 2, straight_through=True)
    src, dst = few.edge_index
    cut_off = few.weight == 0
    assert cut_off.any()
    torch.testing.assert_close(few.weight[~cut_off], scores[dst, src][~cut_off])
    assert (few.weight > 0).sum() == 2 * NODES
    lost = graph.dst, graph.src
    gone = scores[lost] < scores.topk(2).values[graph.dst, 1]
    gradients = [
        torch.autograd.grad(of.sum(), weight, retain_graph=True)[0]
        for of in (few.weight[cut_off], scores[lost][gone])
    ]
    torch.testing.assert_close(*gradients)


def dense_of(graph: ops.Graph) -> Tensor:
    return oracles.adjacency(graph.edge_index, graph.weight, graph.num_nodes)


@pytest.mark.parametrize("rank", [1, 3, NODES - 1, NODES, 50])
@pytest.mark.parametrize(("weighted", "symmetric"), [(True, False), (False, True)])
def test_factors_equal_the_dense_decomposition(weighted: bool, symmetric: bool, rank: int) -> None:
    graph = random_graph(2, symmetric=symmetric, weighted=weighted)
    factors = ops.truncated_svd(graph, rank)
    product = (factors.u * factors.s) @ factors.v.T
    torch.testing.assert_close(product, oracles.truncated(dense_of(graph), rank))
    expected = torch.linalg.svdvals(dense_of(graph))[:rank]
    torch.testing.assert_close(factors.s, expected[expected > 1e-9])
    identity = torch.eye(factors.s.numel(), dtype=torch.float64)
    for vectors in (factors.u, factors.v):
        torch.testing.assert_close(vectors.T @ vectors, identity)


@pytest.mark.slow
def test_the_factors_are_the_same_whatever_the_number_of_threads() -> None:
    """Of vectors as long as these, two threads of BLAS sum in another order than one."""
    nodes = 40_000
    half = torch.randint(nodes, (2, nodes), generator=torch.Generator().manual_seed(0))
    weight = torch.ones(2 * nodes, requires_grad=True)
    graph = ops.Graph.from_edge_index(torch.cat([half, half.flip(0)], 1), weight, num_nodes=nodes)
    by_threads = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            by_threads.append(ops.truncated_svd(graph, 6))
    first, second = by_threads
    for part in ("u", "s", "v"):
        assert torch.equal(getattr(first, part), getattr(second, part))
        assert not getattr(first, part).requires_grad
    z = random_signal(0, 2, nodes).float()  # and no matrix of all pairs is formed, of 6 GB
    ops.low_rank_product(z, first, graph, gradient="exact").sum().backward()
    assert weight.grad.isfinite().all()


def gradients(graph: ops.Graph, rank: int, gradient: str) -> tuple[Tensor, Tensor | None]:
    """By features and by edge weights, of a readout of the product."""
    z = random_signal(0, nodes=graph.num_nodes).requires_grad_()
    weight = graph.weight.clone().requires_grad_()
    graph = with_weight(graph, weight)
    product = ops.low_rank_product(z, ops.truncated_svd(graph, rank), graph, gradient=gradient)
    loss = (product * random_signal(1, nodes=graph.num_nodes)).sum()
    by_z, by_weight = torch.autograd.grad(loss, (z, weight), allow_unused=True)
    return by_z, by_weight


def differences(graph: ops.Graph, rank: int) -> Tensor:
    """Central differences, edge by edge, of the dense truncated decomposition."""
    z, readout = (random_signal(seed, nodes=graph.num_nodes) for seed in (0, 1))

    def loss(weight: Tensor) -> float:
        dense = oracles.truncated(dense_of(with_weight(graph, weight)), rank)
        return ((dense @ z) * readout).sum().item()

    steps = 1e-6 * torch.eye(graph.num_edges, dtype=torch.float64)
    each = [(loss(graph.weight + step) - loss(graph.weight - step)) / 2e-6 for step in steps]
    return torch.tensor(each, dtype=torch.float64)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("rank", [1, 4, NODES - 1])
def test_exact_gradient_is_that_of_the_truncated_matrix(rank: int, symmetric: bool) -> None:
    graph = random_graph(symmetric=symmetric)
    values = torch.linalg.svdvals(dense_of(graph))
    assert values[rank - 1] > 1.05 * values[rank] > 0  # the cut-off lies in a gap
    by_z, by_weight = gradients(graph, rank, "exact")
    torch.testing.assert_close(by_weight, differences(graph, rank), rtol=1e-5, atol=1e-6)
    dense = oracles.truncated(dense_of(graph), rank)
    torch.testing.assert_close(by_z, dense.T @ random_signal(1))


def test_what_is_kept_of_edges_and_weights_is_never_stale() -> None:
    edges, weight = random_edges()
    plain = ops.Graph.from_edge_index(edges, num_nodes=NODES, dtype=torch.float64)
    weighted = ops.Graph.from_edge_index(edges, weight, num_nodes=NODES)
    kept = ops.return_probabilities(weighted, 3)
    assert not torch.allclose(ops.return_probabilities(plain, 3), kept)
    assert ops.return_probabilities(plain, 2).shape == (NODES, 2)
    assert ops.return_probabilities(weighted.carrying(more=weight), 3) is kept
    others = ops.Graph(ops.SortedEdges(weighted.src.flip(0), weighted.dst, NODES), weighted.weight)
    assert not torch.allclose(ops.return_probabilities(others, 3), kept)
    weighted.weight.mul_(torch.linspace(1, 2, weighted.num_edges))
    assert not torch.allclose(ops.return_probabilities(weighted, 3), kept)
