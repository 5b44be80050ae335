"""Every flag rises where an attack was misled, and stays down where it was not."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import Budget, PerturbedGraph, RandomInjection, spent_budget
from robust_diffusion.evaluation import flags
from robust_diffusion.models import MLP, GNNGuard
from tests.attacks.graphs import small_graph, trained_gcn

BUDGET = Budget(max_injected_nodes=5, max_edges_per_injected_node=6, feature_limits=(-1.0, 1.0))


class MaskedGradient(nn.Module):
    """A planted fake: a GCN that rounds its input, so that every gradient is 0."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.model(torch.round(20 * x) / 20, edge_index)  # type: ignore[no-any-return]


class RandomLogits(nn.Module):
    """A planted fake: a GCN that adds noise to what it says."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        logits = self.model(x, edge_index)
        return logits + 0.1 * torch.randn_like(logits)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def graph() -> Data:
    return small_graph()


@pytest.fixture(scope="module")
def gcn(graph: Data) -> nn.Module:
    return trained_gcn(graph)


@pytest.fixture(scope="module")
def injected(graph: Data, gcn: nn.Module) -> PerturbedGraph:
    generator = torch.Generator().manual_seed(0)
    return RandomInjection()(gcn, graph, graph.index_test, BUDGET, generator)


def codes(found: list[flags.Flag]) -> list[str]:
    return [flag.code for flag in found]


def test_masked_gradient_is_caught(graph: Data, gcn: nn.Module, injected: PerturbedGraph) -> None:
    assert codes(flags.gradient_flags(MaskedGradient(gcn), injected, graph.index_test)) == [
        "zero_gradient"
    ]


def test_honest_gradient_is_not_flagged(
    graph: Data, gcn: nn.Module, injected: PerturbedGraph
) -> None:
    assert flags.gradient_flags(gcn, injected, graph.index_test) == []


def test_only_a_model_without_edges_is_blind(
    graph: Data, gcn: nn.Module, injected: PerturbedGraph
) -> None:
    mlp = MLP(graph.num_features, 8, graph.num_classes).eval()
    guard = GNNGuard(graph.num_features, 8, graph.num_classes, threshold=0.5).eval()
    pruned = replace(injected, x=injected.x.clone())
    pruned.x[graph.num_nodes :] = 0  # like nothing, so that every new edge is pruned
    assert flags.is_blind_to_edges(mlp, injected, graph.index_test)
    assert not flags.is_blind_to_edges(gcn, injected, graph.index_test)
    assert not flags.is_blind_to_edges(guard, pruned, graph.index_test)


def test_model_without_autograd_is_caught(
    graph: Data, gcn: nn.Module, injected: PerturbedGraph
) -> None:
    def cut(x: Tensor, edge_index: Tensor) -> Tensor:
        return gcn(x, edge_index).detach()  # type: ignore[no-any-return]

    assert codes(flags.gradient_flags(cut, injected, graph.index_test)) == ["zero_gradient"]


def test_gradient_that_is_not_finite_is_caught(
    graph: Data, gcn: nn.Module, injected: PerturbedGraph
) -> None:
    def infinite(x: Tensor, edge_index: Tensor) -> Tensor:
        # The square root has no derivative at 0.
        return gcn(x, edge_index) + (x - x.detach()).square().sum().sqrt()  # type: ignore[no-any-return]

    found = flags.gradient_flags(infinite, injected, graph.index_test)
    assert "gradient_not_finite" in codes(found)


def test_graph_without_injected_nodes_has_no_gradient(graph: Data, gcn: nn.Module) -> None:
    clean = PerturbedGraph(graph.x, graph.edge_index, graph.num_nodes)
    assert flags.gradient_flags(gcn, clean, graph.index_test) == []


def test_randomised_model_is_caught(graph: Data, gcn: nn.Module) -> None:
    found = flags.stochastic(RandomLogits(gcn), graph.x, graph.edge_index)
    assert found is not None
    assert found.code == "stochastic"
    assert flags.stochastic(gcn, graph.x, graph.edge_index) is None


def test_unchanged_predictions_are_no_effect() -> None:
    classes = torch.tensor([0, 1, 2])
    assert flags.no_effect(classes, classes.clone()) is not None
    assert flags.no_effect(classes, torch.tensor([0, 1, 1])) is None


@pytest.mark.parametrize("code", ["weaker_than_chance", "weaker_than_transfer"])
def test_attack_outdone_by_a_weaker_adversary(code: str) -> None:
    found = flags.weaker_than(0.5, 0.4, code)  # type: ignore[arg-type]
    assert found is not None
    assert found.code == code
    assert flags.weaker_than(0.4, 0.4, code) is None  # type: ignore[arg-type]


def test_loss_that_rises_alone() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    clean = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 2.0]])
    worse = clean.clone()
    worse[1] = torch.tensor([0.0, 40.0])  # wrong before, and now by far
    assert flags.loss_without_errors(clean, worse, labels) is not None
    lost = clean.clone()
    lost[0] = torch.tensor([0.0, 40.0])
    assert flags.loss_without_errors(clean, lost, labels) is None
    assert flags.loss_without_errors(clean, clean, labels) is None


def test_accuracy_that_depends_on_the_solver() -> None:
    assert flags.solvers_disagree({"rk4": 0.5, "dopri5": 0.45}) is not None
    assert flags.solvers_disagree({"rk4": 0.5, "dopri5": 0.495}) is None
    assert flags.solvers_disagree({"rk4": 0.5}) is None


def test_budget_left_over(graph: Data, injected: PerturbedGraph) -> None:
    spent = spent_budget(graph, injected)
    assert flags.budget_unspent(BUDGET, spent) is None
    larger = Budget(max_injected_nodes=6, max_edges_per_injected_node=6, feature_limits=(-1, 1))
    found = flags.budget_unspent(larger, spent)
    assert found is not None
    assert "5 of 6 nodes" in found.detail


def test_more_budget_without_more_effect() -> None:
    assert flags.budget_without_effect([(50, 0.6), (1, 0.6)]) is not None
    assert flags.budget_without_effect([(1, 0.6), (50, 0.3)]) is None
    assert flags.budget_without_effect([(10, 0.0), (50, 0.0)]) is None  # nothing is left to lose
    assert flags.budget_without_effect([(50, 0.6)]) is None
