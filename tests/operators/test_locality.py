import gc
import logging
import sys

import pytest
import torch
from torch import Tensor

from robust_diffusion import GraphPDE, Solver
from robust_diffusion.models import Guard, Rewiring
from robust_diffusion.operators import Graph, locality, node_order, spmm
from tests.graphs import ALL_FLOWS

NODES, COMMUNITY = 600, 30
NODES_FROM = locality.NODES_FROM
SOLVER = Solver("rk4", num_steps=2)


@pytest.fixture(autouse=True)
def _small_graphs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locality, "NODES_FROM", NODES)
    monkeypatch.setattr(locality, "WINDOW", 2 * COMMUNITY)
    monkeypatch.setattr(locality, "NODES_PER_PART", COMMUNITY)


@pytest.fixture
def without_metis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)


def communities(*, shuffled: bool = True, inside: float = 1.0) -> Tensor:
    """Undirected edges, most of them within a community, whose nodes are all over the numbers."""
    generator = torch.Generator().manual_seed(0)
    src = torch.arange(NODES).repeat(4)
    within = src // COMMUNITY * COMMUNITY
    within += torch.randint(COMMUNITY, src.shape, generator=generator)
    anywhere = torch.randint(NODES, src.shape, generator=generator)
    dst = torch.where(torch.rand(src.shape, generator=generator) < inside, within, anywhere)
    edges = torch.stack([src, dst])[:, src != dst]
    if shuffled:
        edges = torch.randperm(NODES, generator=generator)[edges]
    return torch.cat([edges, edges.flip(0)], 1).unique(dim=1)


def test_neighbours_come_close(caplog: pytest.LogCaptureFixture) -> None:
    graph = Graph.from_edge_index(communities(), num_nodes=NODES)
    with caplog.at_level(logging.INFO):
        order = node_order(graph)
    assert order is not None
    local = order.renumber(graph)
    assert (local.dst.diff() >= 0).all()
    close = ((graph.src - graph.dst).abs() < 2 * COMMUNITY).double().mean()
    now = ((local.src - local.dst).abs() < 2 * COMMUNITY).double().mean()
    assert now > 0.9 > 0.5 > close
    assert "600 nodes by METIS" in caplog.text


@pytest.mark.usefixtures("without_metis")
def test_without_metis_they_come_closer() -> None:
    graph = Graph.from_edge_index(communities(), num_nodes=NODES)
    assert node_order(graph) is not None


def test_nodes_that_are_close_already_stay() -> None:
    graph = Graph.from_edge_index(communities(shuffled=False), num_nodes=NODES)
    assert node_order(graph) is None


def test_nodes_stay_where_no_order_helps(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locality, "GAIN", 0.3)
    graph = Graph.from_edge_index(communities(inside=0.0), num_nodes=NODES)
    with caplog.at_level(logging.INFO):
        assert node_order(graph) is None
    assert "left as they are" in caplog.text


def test_small_graphs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locality, "NODES_FROM", NODES + 1)
    assert node_order(Graph.from_edge_index(communities(), num_nodes=NODES)) is None


def test_no_published_graph_is_large() -> None:
    flickr_with_injected_nodes = 89_250 + 1_000
    assert flickr_with_injected_nodes < NODES_FROM


def test_an_order_is_found_once_and_kept_no_longer_than_its_edges() -> None:
    graph = Graph.from_edge_index(communities(), num_nodes=NODES)
    order = node_order(graph)
    assert order is not None
    assert node_order(graph) is order
    assert order.renumber(graph).indexes is order.renumber(graph).indexes
    known = len(locality._ORDERS)
    del graph
    gc.collect()
    assert len(locality._ORDERS) == known - 1


def test_products_and_their_derivatives_are_the_same() -> None:
    edges = communities()
    generator = torch.Generator().manual_seed(1)
    weight = torch.rand(edges.size(1), dtype=torch.float64, generator=generator)
    x = torch.rand(NODES, 3, dtype=torch.float64, generator=generator)
    probe = torch.rand(NODES, 3, dtype=torch.float64, generator=generator)

    def values(*, ordered: bool) -> list[Tensor]:
        leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
        graph = Graph.from_edge_index(edges, leaves[1], num_nodes=NODES)
        order = node_order(graph)
        assert order is not None
        if ordered:
            local = order.renumber(graph)
            out = order.restore(spmm(local.weight, order.arrange(leaves[0]), local))
        else:
            out = spmm(graph.weight, leaves[0], graph)
        first = torch.autograd.grad((out * probe).sum(), leaves, create_graph=True)
        second = torch.autograd.grad((first[0] ** 2).sum(), leaves[1])
        return [out, *first, *second]

    for plain, ordered in zip(values(ordered=False), values(ordered=True), strict=True):
        torch.testing.assert_close(ordered, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("flow", ALL_FLOWS)
@pytest.mark.parametrize("weighted", [False, True])
def test_logits_and_gradients_are_the_same_up_to_rounding(
    flow: type, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = communities()
    torch.manual_seed(0)
    x, weight = torch.randn(NODES, 6).double(), torch.rand(edges.size(1)).double()
    guard = Guard(threshold=-0.5) if weighted else None
    model = GraphPDE(6, 8, 3, flow=flow, solver=SOLVER, num_layers=2, guard=guard).double()

    def values() -> list[Tensor]:
        leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
        torch.manual_seed(1)
        with torch.random.fork_rng():
            frozen = model.eval()
            out = frozen(leaves[0], edges, leaves[1] if weighted else None)
        out.square().sum().backward()
        return [out, *[leaf.grad for leaf in leaves if leaf.grad is not None]]

    ordered = values()
    monkeypatch.setattr(locality, "NODES_FROM", NODES + 1)
    for one, other in zip(values(), ordered, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-8, atol=1e-8)


def test_rewired_edges_take_the_order_of_the_given_ones() -> None:
    edges, x = communities(), torch.randn(NODES, 6)
    model = GraphPDE(6, 8, 3, solver=SOLVER, num_layers=2, rewiring=Rewiring())
    known = len(locality._ORDERS)
    torch.manual_seed(3)
    ordered = model(x, edges)
    assert len(locality._ORDERS) == known + 1  # not one for each layer's own edges
    assert ordered.isfinite().all()
