"""Baselines: memory, timed steps, options, switched copies and values of edges."""

from functools import partial
from inspect import signature
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion import models
from robust_diffusion.data.datamodule import induced_view
from robust_diffusion.errors import ConfigError, TrainingError
from robust_diffusion.evaluation import WhiteBox
from robust_diffusion.flows import Beltrami
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GCN, GCNSVD, BeltramiGuard, RobustGCN
from robust_diffusion.models.adaptive import with_solver
from robust_diffusion.models.edge_values import EdgeNumbers, OnEdgeValues
from robust_diffusion.models.stack import HasHiddenStep
from robust_diffusion.models.victim import Victim
from robust_diffusion.training import NodeClassification
from tests.graphs import NODES, random_edges, random_signal
from tests.models.small import HIDDEN, build_model, edges


@pytest.fixture
def given() -> tuple[Tensor, Tensor]:
    return random_signal(), edges()[0]


def test_gcn_svd_cache(given: Any) -> None:
    x, edge_index = given
    made = [build_model(GCNSVD, rank=rank) for rank in (2, 3, 2)]
    made[2].float()
    for _ in range(2):
        for model, own in zip(made, (x, x, x.float()), strict=True):
            found = model(own, edge_index)
            torch.testing.assert_close(found, model(own, edge_index.clone()))
        edge_index[:, 0] = edge_index[:, 1]


def test_robust_gcn_gradient_at_zero_variance(given: Any) -> None:
    model = build_model(RobustGCN).train()
    with torch.no_grad():
        model.variance[-1].bias -= 1e3
    model(*given).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


STACKS: dict[str, dict[str, Any]] = {
    "GCN": {},
    "GAT": {"heads": 2},
    "GIN": {},
    "GNNGuard": {},
    "GraphSAGE": {},
    "GCNSVD": {"rank": 3},
    "MLP": {},
}


@pytest.mark.parametrize("name", [*STACKS, "RobustGCN"])
def test_timed_step_layer(name: str) -> None:
    model, (edge_index, _) = build_model(getattr(models, name), **STACKS.get(name, {})), edges()
    assert isinstance(model, HasHiddenStep)
    step, seen = model.hidden_step(random_signal(), edge_index), []
    layers, activation = (
        (model.mean, nn.functional.elu) if name == "RobustGCN" else (model.norms, model.activation)
    )
    layers[2].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(random_signal(), edge_index)
    torch.testing.assert_close(activation(step.run()), seen[0])
    assert torch.equal(step.run(), step.run())
    assert (step.kind, step.width) == ("aggregation", HIDDEN * (2 if name == "GAT" else 1))


def test_batch_norm_single_node() -> None:
    x, none = random_signal()[:1], edges()[0][:, :0]
    with pytest.raises(TrainingError, match="batch_norm"):
        build_model(models.GIN).train()(x, none)
    for options in ({"num_layers": 1}, {"batch_norm": False}):
        assert build_model(models.GIN, **options).train()(x, none).isfinite().all()


@pytest.mark.parametrize("name", ["APPNP", "ElasticGNN", "GPRGNN", "RUNG"])
def test_timed_step_propagation(name: str) -> None:
    model, (edge_index, _) = build_model(getattr(models, name)), edges()
    step, alone = (model.hidden_step(random_signal(), e) for e in (edge_index, edge_index[:, :0]))
    assert (step.run() - alone.run()).abs().max() > 1e-3
    assert (step.kind, step.width) == ("aggregation", HIDDEN)


GUARDED = partial(
    BeltramiGuard,
    flow=partial(Beltrami, heads=2, attention_channels=6),
    solver=Solver("rk4", num_steps=2),
)


def by_weights(model: nn.Module) -> torch.Tensor | None:
    edge_index, weight = random_edges()
    loss = model(random_signal(), edge_index, weight.requires_grad_()).square().sum()
    return torch.autograd.grad(loss, weight, allow_unused=True)[0]


DEFENCES = {
    name: cls
    for name in models.__all__
    if "gradient" in signature(cls := getattr(models, name)).parameters
    and issubclass(cls, nn.Module)
}


GIVEN = random_signal(), random_edges()[0]


@pytest.mark.parametrize("name", DEFENCES)
def test_white_box_gradient_of_defences(name: str) -> None:
    gradients = ["exact", "detached", "straight_through"][: 2 if name == "RUNG" else 3]
    for before, gradient in product(gradients, gradients):
        own, other = (build_model(DEFENCES[name], gradient=of) for of in (before, gradient))
        target = WhiteBox(gradient=gradient).form(Victim(own, *GIVEN)).module
        assert torch.equal(target(*GIVEN), own(*GIVEN))
        assert getattr(own, "gradient", before) == before
        torch.testing.assert_close(by_weights(target), by_weights(other))


def test_white_box_gradient_that_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"threat\.gradient: RUNG expected exact or detached"):
        WhiteBox(gradient="straight_through").form(Victim(build_model(models.RUNG), *GIVEN))


OF_ROUNDING = torch.finfo(torch.float32).eps


@pytest.mark.parametrize(
    ("solver", "finer"),
    [
        (Solver("euler", num_steps=2), {"method": "rk4", "num_steps": 8}),
        *(
            (
                Solver("dopri5", rtol=rtol, atol=1e-6, max_nfe=100),
                {"method": "dopri5", "rtol": finer, "max_nfe": 2000, "atol": 1e-6 / 100},
            )
            for rtol, finer in ((1e-3, 1e-5), (1e-6, OF_ROUNDING), (1e-9, 1e-9))
        ),
    ],
)
def test_with_solver_refined(solver: Solver, finer: dict[str, Any]) -> None:
    variant = with_solver(build_model(GUARDED, solver=solver).float(), "rk4", refine=4)
    for layer in variant.layers:
        assert vars(layer.solver).items() >= finer.items()


PART = torch.arange(1, NODES, 2)


def graph() -> Data:
    """Symmetric, without self-loops, in no order."""
    edges, _ = random_edges(0, symmetric=True)
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    order = torch.randperm(edges.size(1), generator=torch.Generator().manual_seed(0))
    return Data(x=random_signal(), y=torch.zeros(NODES), edge_index=edges[:, order])


def matrix(edges: Tensor) -> Tensor:
    """The matrix, row by row of where messages go, of edge numbers that SciPy takes for weights."""
    ones = np.zeros((NODES, NODES))
    ones[tuple(edges.flip(0).numpy())] = 1
    order = reverse_cuthill_mckee(sparse.csr_matrix(ones))
    ordered = sparse.csc_matrix(ones[np.ix_(order, order)])
    numbers = np.arange(ordered.nnz, dtype=float)
    numbered = sparse.csc_matrix((numbers, ordered.indices, ordered.indptr), shape=ones.shape)
    found = np.empty_like(ones)
    found[np.ix_(order, order)] = numbered.toarray()
    return torch.from_numpy(found).float()


def test_edge_values_dense() -> None:
    edges = graph().edge_index
    values = EdgeNumbers(graph())(edges, NODES)
    assert values.tolist() == matrix(edges)[edges[1], edges[0]].tolist()
    assert sorted(values.tolist()) == list(range(edges.size(1)))


def test_edge_values_of_new_edges() -> None:
    kept = graph()
    kept.edge_index, gone = kept.edge_index[:, 3:], kept.edge_index[:, :3]
    edges, numbers = kept.edge_index, EdgeNumbers(kept)
    attacked = torch.cat([torch.tensor([[NODES, 0], [0, NODES + 3]]), gone, edges], 1)
    values = numbers(attacked, NODES + 4)
    assert values[:5].tolist() == [1] * 5
    assert torch.equal(values[5:], numbers(edges, NODES))


def test_edge_values_of_views() -> None:
    first, second = (induced_view(graph(), p, p, degree_leak=True) for p in (PART, PART + 1))
    assert len(first.x) == len(second.x)
    whole, values = EdgeNumbers(graph()), EdgeNumbers(graph(), (first, second))
    for view in (first, second):
        expected = whole(view.n_id[view.edge_index], NODES)
        assert torch.equal(values(view.edge_index, len(view.x)), expected)
        nodes = len(view.x)  # and one injected node
        edges = torch.cat([view.edge_index, torch.tensor([[nodes, 0], [0, nodes]])], 1)
        assert values(edges, nodes + 1).tolist() == [*expected.tolist(), 1, 1]
    assert not torch.equal(values.degree(first.degree, first.edge_index), first.degree)
    other = first.edge_index[:, 1:]  # of the whole graph, as far as anything tells
    assert torch.equal(values(other, len(first.x)), whole(other, len(first.x)))
    assert torch.equal(values.degree(first.degree, other), first.degree)


def test_edge_values_of_first_nodes() -> None:
    data = graph()
    train, val = (torch.arange(count) for count in (NODES // 2, NODES - 2))
    views = [induced_view(data, nodes, nodes, degree_leak=False) for nodes in (train, val)]
    whole, values = EdgeNumbers(data), EdgeNumbers(data, views)
    outside = (data.edge_index >= len(val)).any(0)  # of both views
    flipped = data.edge_index[:, ~outside | (outside.cumsum(0) > 1)]
    for own, nodes in [
        (data.edge_index, NODES),
        (flipped, NODES),
        *((view.edge_index, len(view.x)) for view in views),
    ]:
        attacked = torch.cat([own, torch.tensor([[nodes, 0], [0, nodes]])], 1)
        expected = whole(own, NODES)
        assert torch.equal(values(own, nodes), expected)
        assert values(attacked, nodes + 1).tolist() == [*expected.tolist(), 1, 1]
    # As many injected nodes as the view lacks.
    new = torch.cat([train.new_tensor([[NODES - 1, 0], [0, NODES - 1]]), views[0].edge_index], 1)
    assert values(new, NODES)[:2].tolist() == [1, 1]


@pytest.mark.parametrize("degree_leak", [False, True])
def test_edge_values_of_the_whole_graph(degree_leak: bool) -> None:
    dense = matrix(graph().edge_index)
    view = induced_view(graph(), PART, PART, degree_leak=degree_leak)
    src, dst = PART[view.edge_index]
    sums = (dense.sum(1)[PART] + 1) if degree_leak else None
    model = build_model(GCN)
    expected = model(view.x, view.edge_index, dense[dst, src], sums)
    on_values = OnEdgeValues(model, EdgeNumbers(graph(), (view,))).eval()
    trained = NodeClassification(on_values, num_classes=3)
    assert torch.equal(trained(view), expected)
    # A model that does not read them trains as ever.
    plain = NodeClassification(model, num_classes=3)(view)
    leaked = view.degree if degree_leak else None
    assert torch.equal(plain, model(view.x, view.edge_index, degree=leaked))
