"""The sums and functions over edges against dense matrices, under every backend."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from robust_diffusion import operators as ops
from tests import oracles
from tests.backends import BACKENDS, backend
from tests.graphs import NODES, random_graph, random_signal, with_weight
from tests.operators.test_graph import edge_lists

Inputs = tuple[Tensor, Tensor, Tensor]
"""Edge weights, node features of two heads, and scores of two heads."""

PRIMITIVES: dict[str, Callable[[ops.Graph, Tensor, Tensor, Tensor], Tensor]] = {
    "row_sum": lambda graph, w, z, s: ops.row_sum(s, graph),
    "row_softmax": lambda graph, w, z, s: ops.row_softmax(s, with_weight(graph, w)),
    "row_softmax, relative": lambda graph, w, z, s: ops.row_softmax(
        s, with_weight(graph, w), relative=True
    ),
    "row_softmax, no weight": lambda graph, w, z, s: ops.row_softmax(
        s, replace(graph, weight=None)
    ),
    "edge_dot": lambda graph, w, z, s: ops.edge_dot(z, z.flip(2), graph),
    "edge_dot, one head": lambda graph, w, z, s: ops.edge_dot(z[:, :1], z[:, 1:], graph),
    "edge_squared_distance": lambda graph, w, z, s: ops.edge_squared_distance(z[:, 1], graph),
    "spmm": lambda graph, w, z, s: ops.spmm(w, z[:, 0], graph),
    "spmm, transposed": lambda graph, w, z, s: ops.spmm(w, z[:, 0], graph, transposed=True),
}


def matrix(values: Tensor, graph: ops.Graph) -> Tensor:
    return oracles.adjacency(graph.edge_index, values, graph.num_nodes)


def at_edges(matrices: list[Tensor], graph: ops.Graph) -> Tensor:
    return torch.stack([each[graph.dst, graph.src] for each in matrices], 1)


def dense_softmax(graph: ops.Graph, w: Tensor, s: Tensor) -> Tensor:
    weight = matrix(w, graph)
    return at_edges([oracles.softmax(matrix(head, graph), weight) for head in s.T], graph)


DENSE: dict[str, Callable[[ops.Graph, Tensor, Tensor, Tensor], Tensor]] = {
    "row_sum": lambda graph, w, z, s: torch.stack([matrix(head, graph).sum(1) for head in s.T], 1),
    "row_softmax": lambda graph, w, z, s: dense_softmax(graph, w, s),
    "row_softmax, relative": lambda graph, w, z, s: dense_softmax(graph, w, s) / w[:, None],
    "row_softmax, no weight": lambda graph, w, z, s: dense_softmax(graph, torch.ones_like(w), s),
    "edge_dot": lambda graph, w, z, s: at_edges([x @ x.flip(1).T for x in z.unbind(1)], graph),
    "edge_dot, one head": lambda graph, w, z, s: at_edges([z[:, 0] @ z[:, 1].T], graph),
    "edge_squared_distance": lambda graph, w, z, s: at_edges(
        [torch.cdist(z[:, 1], z[:, 1]).square()], graph
    ).squeeze(1),
    "spmm": lambda graph, w, z, s: matrix(w, graph) @ z[:, 0],
    "spmm, transposed": lambda graph, w, z, s: matrix(w, graph).T @ z[:, 0],
}


def inputs(graph: ops.Graph) -> Inputs:
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(graph.num_edges, 2, generator=generator, dtype=torch.float64)
    return graph.weight.clone(), random_signal(1, 6).view(NODES, 2, 3), scores


@pytest.mark.parametrize("name", [*BACKENDS, "triton"])
@pytest.mark.parametrize("case", PRIMITIVES)
def test_primitive_equals_the_dense_one(case: str, name: str) -> None:
    graph = random_graph()
    with backend(name):
        found = PRIMITIVES[case](graph, *inputs(graph))
    torch.testing.assert_close(found, DENSE[case](graph, *inputs(graph)))


@pytest.mark.parametrize("name", [*BACKENDS, "triton"])
@pytest.mark.parametrize("case", PRIMITIVES)
def test_primitive_first_and_second_derivatives(case: str, name: str) -> None:
    """One edge has weight 0; its gradient is the effect of adding it."""
    graph = random_graph()
    weight, z, scores = inputs(graph)
    weight[4] = 0

    def function(*inputs: Tensor) -> Tensor:
        return PRIMITIVES[case](graph, *inputs)

    leaves = [leaf.requires_grad_() for leaf in (weight, z, scores)]
    with backend(name):
        assert gradcheck(function, leaves, fast_mode=name == "triton")
        assert gradgradcheck(function, leaves, fast_mode=True)
        if case == "row_softmax":
            (gradient,) = torch.autograd.grad((function(*leaves) * scores).sum(), weight)
            assert gradient[4] != 0


@pytest.mark.parametrize("name", [*BACKENDS, "triton"])
@pytest.mark.parametrize("case", PRIMITIVES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_primitive_in_other_precisions(case: str, name: str, dtype: torch.dtype) -> None:
    graph = random_graph()
    expected = PRIMITIVES[case](graph, *inputs(graph))
    w, z, s = (leaf.to(dtype) for leaf in inputs(graph))
    with backend(name):
        found = PRIMITIVES[case](with_weight(graph, w), w, z, s)
    assert found.dtype == dtype
    rounding = {torch.float32: 1e-5, torch.bfloat16: 0.05}[dtype]
    torch.testing.assert_close(found.double(), expected, rtol=rounding, atol=rounding)


def test_row_max_equals_the_dense_one() -> None:
    graph = random_graph(self_loops=False)
    _, _, scores = inputs(graph)
    missing = matrix(torch.ones(graph.num_edges, dtype=torch.float64), graph) == 0
    dense = [matrix(head, graph).masked_fill(missing, -torch.inf) for head in scores.T]
    expected = torch.stack([each.max(1).values for each in dense], 1)
    assert torch.equal(ops.row_max(scores, graph), expected)


@settings(max_examples=30)
@given(edge_index=edge_lists, channels=st.integers(1, 3))
def test_spmm_of_any_edge_list(edge_index: torch.Tensor, channels: int) -> None:
    graph = ops.Graph.from_edge_index(edge_index, num_nodes=NODES, self_loops=False)
    weight, z = torch.randn(graph.num_edges, dtype=torch.float64), random_signal(1, channels)
    dense = matrix(weight, graph)
    torch.testing.assert_close(ops.spmm(weight, z, graph), dense @ z)
    torch.testing.assert_close(ops.spmm(weight, z, graph, transposed=True), dense.T @ z)


def test_gathers_are_products_with_the_incidence_matrix() -> None:
    graph, z = random_graph(), random_signal(channels=3)
    arrives = F.one_hot(graph.dst, NODES).double().T
    assert torch.equal(ops.gather_dst(z, graph), arrives.T @ z)
    assert torch.equal(ops.gather_src(z, graph), z[graph.src])


@pytest.mark.parametrize("channels", [1, 40])
def test_cosine_equals_torchs_in_any_chunks(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, x = random_graph(), random_signal(0, channels)
    expected = F.cosine_similarity(x[graph.dst], x[graph.src], dim=1)
    for held in (ops.edges.VALUES_AT_A_TIME, 1):
        monkeypatch.setattr(ops.edges, "VALUES_AT_A_TIME", held)
        torch.testing.assert_close(ops.edge_cosine(x, graph), expected)
