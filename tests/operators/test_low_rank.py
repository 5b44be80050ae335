import pytest
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from robust_diffusion.operators import Graph, LowRank, low_rank_product, spmm, truncated_svd
from tests import oracles
from tests.graphs import (
    NODES,
    random_edges,
    random_graph,
    random_signal,
    with_weight,
)

GRADIENTS = ["exact", "straight_through", "detached"]


def dense_of(graph: Graph) -> Tensor:
    return oracles.adjacency(graph.edge_index, graph.weight, graph.num_nodes)


def multiplied(factors: LowRank) -> Tensor:
    return (factors.u * factors.s) @ factors.v.T


@pytest.mark.parametrize("rank", [1, 3, NODES - 1, NODES, 50])
@pytest.mark.parametrize(("weighted", "symmetric"), [(True, False), (False, True)])
def test_factors_equal_the_dense_decomposition(weighted: bool, symmetric: bool, rank: int) -> None:
    graph = random_graph(2, symmetric=symmetric, weighted=weighted)
    factors = truncated_svd(graph, rank)
    torch.testing.assert_close(multiplied(factors), oracles.truncated(dense_of(graph), rank))
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
    graph = Graph.from_edge_index(torch.cat([half, half.flip(0)], 1), weight, num_nodes=nodes)
    by_threads = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            by_threads.append(truncated_svd(graph, 6))
    first, second = by_threads
    for part in ("u", "s", "v"):
        assert torch.equal(getattr(first, part), getattr(second, part))
        assert not getattr(first, part).requires_grad
    z = random_signal(0, 2, nodes).float()  # and no matrix of all pairs is formed, of 6 GB
    low_rank_product(z, first, graph, gradient="exact").sum().backward()
    assert weight.grad is not None
    assert weight.grad.isfinite().all()


@pytest.mark.parametrize(("num_nodes", "rank"), [(1, 50), (2, 1), (9, 3)])
@pytest.mark.parametrize(
    ("edge_index", "value"),
    [(torch.zeros(2, 0, dtype=torch.long), 1.0), (torch.tensor([[0], [0]]), 0.0)],
    ids=["no_edges", "weight_zero"],
)
def test_a_matrix_of_zeros_has_no_singular_value(
    edge_index: Tensor, value: float, num_nodes: int, rank: int
) -> None:
    weight = torch.full((edge_index.size(1),), value, dtype=torch.float64)
    graph = Graph.from_edge_index(edge_index, weight, num_nodes=num_nodes, self_loops=False)
    factors = truncated_svd(graph, rank)
    assert factors.s.numel() == 0
    z = random_signal(nodes=num_nodes)
    product = low_rank_product(z, factors, graph, gradient="exact")
    assert torch.equal(product, torch.zeros_like(z))


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_product_equals_the_dense_one(gradient: str) -> None:
    graph, z = random_graph(), random_signal()
    product = low_rank_product(z, truncated_svd(graph, 3), graph, gradient=gradient)
    torch.testing.assert_close(product, oracles.truncated(dense_of(graph), 3) @ z)


def gradients(graph: Graph, rank: int, gradient: str) -> tuple[Tensor, Tensor | None]:
    """By features and by edge weights, of a readout of the product."""
    z = random_signal(0, nodes=graph.num_nodes).requires_grad_()
    weight = graph.weight.clone().requires_grad_()
    graph = with_weight(graph, weight)
    product = low_rank_product(z, truncated_svd(graph, rank), graph, gradient=gradient)
    loss = (product * random_signal(1, nodes=graph.num_nodes)).sum()
    by_z, by_weight = torch.autograd.grad(loss, (z, weight), allow_unused=True)
    return by_z, by_weight


def differences(graph: Graph, rank: int) -> Tensor:
    """Central differences, edge by edge, of the dense truncated decomposition."""
    z, readout = (random_signal(seed, nodes=graph.num_nodes) for seed in (0, 1))

    def loss(weight: Tensor) -> float:
        dense = oracles.truncated(dense_of(with_weight(graph, weight)), rank)
        return ((dense @ z) * readout).sum().item()

    steps = 1e-6 * torch.eye(graph.num_edges, dtype=torch.float64)
    each = [(loss(graph.weight + step) - loss(graph.weight - step)) / 2e-6 for step in steps]
    return torch.tensor(each, dtype=torch.float64)


def with_gap(seed: int, rank: int, *, symmetric: bool) -> Graph:
    """A random weighted graph whose cut-off lies in a gap of its singular values."""
    graph = random_graph(seed, symmetric=symmetric)
    values = torch.linalg.svdvals(dense_of(graph))
    assert values[rank - 1] > 1.05 * values[rank] > 0
    return graph


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("rank", [1, 4, NODES - 1])
def test_exact_gradient_is_that_of_the_truncated_matrix(rank: int, symmetric: bool) -> None:
    graph = with_gap(0, rank, symmetric=symmetric)
    by_z, by_weight = gradients(graph, rank, "exact")
    assert by_weight is not None
    torch.testing.assert_close(by_weight, differences(graph, rank), rtol=1e-5, atol=1e-6)
    dense = oracles.truncated(dense_of(graph), rank)
    torch.testing.assert_close(by_z, dense.T @ random_signal(1))


PAIRS = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])


@pytest.mark.parametrize(
    ("edge_index", "nodes", "rank"),
    [
        (random_edges()[0], NODES, NODES),
        (PAIRS, 4, 3),
        (PAIRS, 4, 50),
    ],
    ids=["random", "pairs_below", "pairs_beyond"],
)
def test_where_nothing_is_cut_the_exact_gradient_is_that_of_the_matrix(
    edge_index: Tensor, nodes: int, rank: int
) -> None:
    """With fewer singular values than the rank, an edge changes the product as if untruncated."""
    graph = Graph.from_edge_index(edge_index, num_nodes=nodes, dtype=torch.float64)
    torch.testing.assert_close(
        gradients(graph, rank, "exact"), gradients(graph, rank, "straight_through")
    )
    _, by_weight = gradients(graph, rank, "exact")
    assert by_weight is not None
    torch.testing.assert_close(by_weight, differences(graph, rank), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradient_is_bounded_where_the_cut_splits_equal_singular_values(rank: int) -> None:
    """Where it does not exist, it must still be a number that an optimiser can follow."""
    square = torch.tensor([(u, v) for u in range(4) for v in range(4) if u != v]).T
    edge_index = torch.cat([square + 4 * block for block in range(4)], 1)
    graph = Graph.from_edge_index(edge_index, num_nodes=16, dtype=torch.float64)
    _, by_weight = gradients(graph, rank, "exact")
    _, untruncated = gradients(graph, rank, "straight_through")
    assert by_weight is not None
    assert untruncated is not None
    assert by_weight.abs().max() < 1e10 * untruncated.abs().max()


def test_straight_through_is_the_gradient_of_the_untruncated_product() -> None:
    graph = random_graph()
    weight = graph.weight.clone().requires_grad_()
    (spmm(weight, random_signal(), graph) * random_signal(1)).sum().backward()
    by_z, by_weight = gradients(graph, 2, "straight_through")
    torch.testing.assert_close(by_weight, weight.grad)
    torch.testing.assert_close(by_z, gradients(graph, 2, "exact")[0])
    assert not torch.allclose(by_weight, gradients(graph, 2, "exact")[1])
    by_z, by_weight = gradients(graph, 2, "detached")
    assert by_weight is None
    torch.testing.assert_close(by_z, gradients(graph, 2, "exact")[0])


@pytest.mark.parametrize("gradient", ["exact", "straight_through"])
def test_single_precision_gradients_are_close_to_double(gradient: str) -> None:
    graph = random_graph()
    _, expected = gradients(graph, 3, gradient)
    z = random_signal().float()
    weight = graph.weight.float().requires_grad_()
    single = with_weight(graph, weight)
    product = low_rank_product(z, truncated_svd(single, 3), single, gradient=gradient)
    (product * random_signal(1).float()).sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    torch.testing.assert_close(weight.grad.double(), expected, rtol=1e-3, atol=1e-3)
