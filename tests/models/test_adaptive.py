"""Adaptive forms of models, and models of others: GRB's, readers of raw features, wrong ones."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from torch import Tensor, nn

from robust_diffusion.attacks import Budget, GradientInjection, Task
from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.normalize import feature_scale
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.models import GRBModel
from robust_diffusion.models.adaptive import adaptive_form
from robust_diffusion.models.raw_features import RawFeatures
from robust_diffusion.models.victim import Victim
from robust_diffusion.training.fit_model import fit
from tests import (
    oracles,
    tutorials,  # noqa: F401  # the reader's modules
)
from tests.attacks.graphs import small_graph, train
from tests.configs import composed
from tests.graphs import CHANNELS, NODES, random_edges, random_signal

GRAPH = small_graph()
OTHER = [
    ["model=gnn_guard"],
    ["model=beltrami_guard"],
    ["model=gcn_svd", "model.rank=10"],
    ["model=gcn_jaccard", "model.threshold=0.3"],
    ["model=soft_median", "model.neighbors=8"],
    ["model=robust_gcn", "model.sample_at_test=true"],
    ["model=graph_pde", "flow=heat", "solver.adjoint=true"],
]


def build(overrides: list[str]) -> nn.Module:
    cfg = composed("model.hidden_channels=16", "model.num_layers=2", *overrides)
    torch.manual_seed(0)
    return instantiate(cfg.model)(in_channels=16, out_channels=7).eval()


def accuracy_under_attack(judge: Victim, seen: Victim) -> float:
    """Accuracy of a victim on graphs that were made by the gradients of one of its forms."""
    attack = GradientInjection(start="uniform", loss="masked", num_steps=30)
    truth, budget = Task(GRAPH, GRAPH.index_test, GRAPH.y), Budget(10, 10, (-0.94, 0.94))
    view = truth.attacker_view(seen, "predictions")
    torch.manual_seed(0)
    made = attack(seen, view, budget, torch.Generator().manual_seed(0))
    with torch.no_grad():
        return truth.accuracy(judge(made.x, made.edge_index))


@pytest.mark.slow
@pytest.mark.parametrize("overrides", OTHER[::2], ids=" ".join)
def test_adaptive_form_against_white_box(overrides: list[str]) -> None:
    model = train(build(overrides).train(), GRAPH, GRAPH.index_train, epochs=30)
    victim = Victim.probe(model, GRAPH.x, GRAPH.edge_index)
    judge = victim.form(model, draws=50 if victim.traits.is_random else 1)
    white_box = accuracy_under_attack(judge, victim)
    assert accuracy_under_attack(judge, victim.adaptive()) <= white_box + 0.01


@pytest.mark.parametrize("overrides", OTHER, ids=" ".join)
def test_adaptive_form_outputs(overrides: list[str]) -> None:
    model = build(overrides)
    before = copy.deepcopy(model)
    adaptive = adaptive_form(model)
    for other in (before, adaptive):
        torch.manual_seed(1)
        expected = model(GRAPH.x, GRAPH.edge_index)
        torch.manual_seed(1)
        torch.testing.assert_close(other(GRAPH.x, GRAPH.edge_index), expected, rtol=0, atol=1e-5)
    weights = {key: value.tolist() for key, value in before.state_dict().items()}
    assert {key: value.tolist() for key, value in model.state_dict().items()} == weights


CLASSES = 3


class Convolution(nn.Module):
    """A model of GRB's calling convention: features and a sparse matrix, or a list of two."""

    def __init__(self, in_channels: int = CHANNELS) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(in_channels, CLASSES)

    def forward(self, x: Tensor, adj: Tensor | list[Tensor], dropout: float = 0.0) -> Tensor:
        h = self.linear(x)
        if isinstance(adj, list):
            return torch.spmm(adj[0], h) - torch.spmm(adj[1], h)
        assert adj.layout == torch.sparse_coo
        return torch.spmm(adj, h)


def dense(normalization: str, edge_index: Tensor, weight: Tensor) -> Tensor:
    """GRB's normalisation, written on n x n matrices."""
    if normalization == "none":
        return oracles.adjacency(edge_index, weight, NODES)
    a = oracles.adjacency(edge_index, weight, NODES, self_loops=True)
    degree = a.sum(1)
    symmetric = degree.rsqrt().diag() @ a @ degree.rsqrt().diag()
    inverse = degree.reciprocal().diag() @ a
    return {
        "symmetric": symmetric,
        "mean": inverse,
        "both": symmetric - inverse @ degree.reciprocal().diag(),
    }[normalization]


@pytest.mark.parametrize("normalization", ["symmetric", "mean", "both", "none"])
def test_grb_model_matrix(normalization: str) -> None:
    edge_index, weight = random_edges()  # directed: rows are where edges arrive
    inner = Convolution().double()
    model = GRBModel(inner, normalization=normalization)
    for given, values in (((weight,), weight), ((), torch.ones_like(weight))):
        expected = dense(normalization, edge_index, values) @ inner.linear(random_signal())
        torch.testing.assert_close(model(random_signal(), edge_index, *given), expected)
    edge_index, weight = random_edges(symmetric=True)
    given = (random_signal().requires_grad_(), weight.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, w: model(x, edge_index, w), given)


def graph() -> Any:
    return citation_like_graph(num_nodes=200, num_edges=400, num_features=16)


class Reader(nn.Module):
    """Logits of raw features alone, which it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = RawFeatures()
        self.linear = nn.Linear(16, 7)
        self.seen: Any = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.seen = (self.raw(x).detach(),)  # in a tuple, as no part of the module
        return self.linear(self.raw(x))


@pytest.mark.parametrize("normalize", ["arctan", None])
def test_raw_features_after_training(normalize: Any) -> None:
    raw = graph()
    datamodule = GraphDataModule.from_data(raw, difficulty="easy", normalize=normalize)
    model = Reader()
    fit(model, datamodule, max_epochs=1, accelerator="cpu", progress=False)
    model(datamodule.graph.x, raw.edge_index)
    torch.testing.assert_close(model.seen[0], raw.x, rtol=1e-5, atol=1e-5)
    # The same module on a graph of another scale, or of none.
    fit(model, raw, max_epochs=1, accelerator="cpu", progress=False)
    model(raw.x, raw.edge_index)
    assert torch.equal(model.seen[0], raw.x)


def test_raw_features_gradient() -> None:
    x = torch.tensor([[-1.0, -0.5, 0.0, 0.9, 1.0]], dtype=torch.float64, requires_grad=True)
    raw = RawFeatures()
    raw(x).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))  # the identity, so far
    raw.follow(feature_scale(torch.tensor([[0.0, 2.0, 4.0]])))
    assert torch.autograd.gradcheck(raw.double(), x[:, 1:4].detach().requires_grad_())
    (gradient,) = torch.autograd.grad(raw(x).sum(), x)
    assert gradient.isfinite().all()


@pytest.mark.parametrize(("module", "name"), [("pruned", "PrunedGCN"), ("jaccard", "JaccardGCN")])
def test_adaptive_form_of_the_tutorial(module: str, name: str) -> None:
    build: Callable[..., nn.Module] = getattr(__import__(module), name)
    raw = graph()
    datamodule = GraphDataModule.from_data(raw, difficulty="easy", normalize="arctan")
    model = build(16, 7, hidden_channels=8, threshold=0.3).eval()
    for part in model.modules():
        if isinstance(part, RawFeatures):
            part.follow(datamodule.feature_scale)
    x, edge_index = datamodule.graph.x, raw.edge_index
    adapted, weight = adaptive_form(model), torch.ones(edge_index.size(1))
    torch.testing.assert_close(adapted(x, edge_index), model(x, edge_index))
    similarity = model.similarity(x, *edge_index)  # type: ignore[operator]
    assert 0 < (similarity < 0.3).sum() < similarity.numel()
    # A pruned edge is none to the model itself, and one that an attack can follow in this form.
    for form, follows in ((model, False), (adapted, True)):
        (gradient,) = torch.autograd.grad(
            form(x, edge_index, weight.requires_grad_()).square().sum(), weight
        )
        assert (gradient[similarity < 0.3].abs() > 0).any() == follows
