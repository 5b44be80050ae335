"""The graph PDE, rewiring and the guard, beyond the contract of all models."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robust_diffusion.flows import FLOWS, Flow
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GraphPDE, Guard, Rewiring, rewiring
from robust_diffusion.operators import Graph, spmm, symmetric_weights
from tests import oracles
from tests.graphs import NODES, random_graph, random_signal


def scores_of(graph: Graph) -> Tensor:
    """A different score for every pair of nodes."""
    return (graph.dst * graph.num_nodes + graph.src).double()


def pairs(graph: Graph) -> list[tuple[int, int]]:
    return [(source, target) for source, target in graph.edge_index.T.tolist()]


def large_graph() -> Graph:
    torch.manual_seed(0)
    dense = (torch.rand(60, 60) < 0.1).fill_diagonal_(1)
    return Graph.from_edge_index(dense.nonzero().T, num_nodes=60, dtype=torch.float64)


@settings(max_examples=30)
@given(
    keep=st.floats(0.05, 1.0),
    add=st.floats(0.0, 0.9),
    drop=st.floats(0.0, 0.9),
    seed=st.integers(0, 10**6),
)
def test_rewiring_no_duplicates(keep: float, add: float, drop: float, seed: int) -> None:
    torch.manual_seed(seed)
    scored: list[Graph] = []
    rewired = Rewiring(keep, add, drop)(
        random_graph(seed), lambda graph: (scored.append(graph), scores_of(graph))[1]
    )
    for graph in scored:  # of kept and added edges
        assert set(pairs(rewired)) <= set(pairs(graph))
    assert rewired.num_nodes == NODES
    assert (rewired.dst.diff() >= 0).all()
    assert len(set(pairs(rewired))) == rewired.num_edges == rewired.weight.numel()
    assert ((rewired.edge_index >= 0) & (rewired.edge_index < NODES)).all()


@pytest.mark.parametrize("keep", [0.01, 0.77, 1.0])
def test_rewiring_kept_edges(keep: float) -> None:
    graph = large_graph()
    weight = (1 + torch.rand_like(graph.full_weight)).requires_grad_()
    rewired = Rewiring(keep, 0.0, 0.0)(replace(graph, weight=weight), pytest.fail)
    assert rewired.num_edges == int(keep * graph.num_edges)
    before = oracles.adjacency(graph.edge_index, weight.detach(), graph.num_nodes)
    assert torch.equal(before[rewired.dst, rewired.src], rewired.weight)
    rewired.weight.sum().backward()
    assert weight.grad.sum() == rewired.num_edges


@pytest.mark.parametrize("drop", [0.0, 0.25])
@pytest.mark.parametrize("weighted", [False, True])
def test_rewiring_without_weights(
    drop: float, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = large_graph()
    graph = replace(graph, weight=torch.rand_like(graph.full_weight) if weighted else None)
    for counting in both_ways(monkeypatch):  # edges of weight 0 stand for those not counted
        rewired = Rewiring(0.7, 0.5, drop)(graph, scores_of)
        assert (rewired.weight is None) == (counting and not weighted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("drop", [0.05, 0.25, 0.999])
def test_rewiring_dropped_edges(drop: float, dtype: torch.dtype) -> None:
    graph = large_graph()
    score = torch.rand(graph.num_nodes, graph.num_nodes, dtype=dtype)
    rewired = Rewiring(1.0, 0.0, drop)(graph, lambda kept: score[kept.dst, kept.src])
    scores = score[graph.dst, graph.src]
    limit = torch.quantile(scores, drop)
    assert torch.equal(rewiring._quantile(scores, drop, None), limit)
    above = scores > limit
    assert rewired.num_edges == pytest.approx((1 - drop) * graph.num_edges, abs=1)
    assert {*pairs(rewired)} == {*map(tuple, graph.edge_index[:, above].T.tolist())}


def both_ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Yield whether edges are counted, as on a CPU, each time with the same random numbers."""
    for counting in (True, False):
        monkeypatch.setattr(rewiring, "COUNTING", {"cpu"} if counting else set())
        torch.manual_seed(0)
        yield counting


@pytest.mark.parametrize("drop", [0.0, 0.25])
def test_rewiring_edges_of_weight_zero(drop: float, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for counting in both_ways(monkeypatch):
        drawn = Rewiring(0.7, 0.5, drop)(large_graph(), scores_of)
        found[counting] = oracles.adjacency(drawn.edge_index, drawn.full_weight, drawn.num_nodes)
    assert torch.equal(found[True], found[False])
    assert found[True].sum() < large_graph().num_edges * 1.2


@pytest.mark.parametrize("name", ["heat", "grand", "beltrami", "hang", "frond"])
def test_rewiring_in_a_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for counting in both_ways(monkeypatch):
        graph, x = large_graph(), random_signal(nodes=60)
        options = {"flow": name, "solver": Solver("rk4", num_steps=2), "rewiring": Rewiring()}
        model = GraphPDE(x.size(1), 8, out_channels=3, num_layers=2, **options).double().train()
        logits = model(x, graph.edge_index)
        logits.square().sum().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        found[counting] = [logits.detach(), *gradients]
    torch.testing.assert_close(found[True], found[False])


class Once(Flow):
    """Diffusion along weights that are computed once per solve."""

    def prepare(self, z: Tensor, graph: Graph) -> Graph:
        return graph.carrying(once=symmetric_weights(graph))

    def edge_weights(self, z: Tensor, graph: Graph) -> Tensor:
        return graph.carried["once"]

    def forward(self, t: Tensor, z: Tensor, graph: Graph) -> Tensor:
        return spmm(self.edge_weights(z, graph), z, graph) - z


def test_rewiring_prepared_flow() -> None:
    graph, x = large_graph(), random_signal(nodes=60)
    model = GraphPDE(x.size(1), 8, out_channels=3, flow=Once, rewiring=Rewiring()).double().train()
    assert model(x, graph.edge_index).isfinite().all()


def test_guard_straight_through() -> None:
    graph, x = random_graph(symmetric=True, weighted=False), random_signal()
    pruned = Guard(threshold=0.5)(x, graph)[0].weight == 0
    readout, found = torch.linspace(1, 2, graph.num_edges, dtype=torch.float64), {}
    for gradient in ("exact", "straight_through"):
        weight = graph.weight.clone().requires_grad_()
        _, weighted = Guard(threshold=0.5, gradient=gradient)(x, replace(graph, weight=weight))
        (found[gradient],) = torch.autograd.grad((weighted.weight * readout).sum(), weight)
    assert (found["exact"][pruned] == 0).all()
    assert (found["straight_through"][pruned] != 0).all()
    assert (found["exact"][~pruned] != 0).all()


def options(module: Any) -> dict[str, Any]:
    """Its own attributes that are no modules or tensors."""
    own = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    return own | {
        f"{key}.{k}": v for key, m in module.named_children() for k, v in options(m).items()
    }


@pytest.mark.parametrize("flow", FLOWS)
def test_graph_pde_flow_by_name(compose: Callable[..., Any], flow: str) -> None:
    configured = instantiate(compose(f"flow={flow}").model)(in_channels=5, out_channels=3)
    model = GraphPDE(5, 64, out_channels=3, flow=flow)
    assert type(model.layers[0].flow) is type(configured.layers[0].flow)
    assert options(model.layers[0].flow) == options(configured.layers[0].flow)
    own, same = (vars(of.layers[0].solver) for of in (model, configured))
    assert own == same
    assert model.state_dict().keys() == configured.state_dict().keys()
