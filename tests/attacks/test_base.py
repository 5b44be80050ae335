from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from robust_diffusion.attacks import Budget, PerturbedGraph, SpentBudget, spent_budget
from robust_diffusion.attacks.base import frozen

X = torch.tensor([[9.0, 9.0], [1.0, 2.0], [9.0, -9.0]])
CLEAN = Data(x=X, edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))


def perturbed(
    injected: list[list[float]], edges: list[tuple[int, int]], x: Tensor = X
) -> PerturbedGraph:
    """Three original nodes, then injected ones, and undirected edges."""
    half = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    both = torch.cat([half, half.flip(0)], 1)
    return PerturbedGraph(torch.cat([x, torch.tensor(injected).reshape(-1, 2)]), both, 3)


PATH = [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("injected", "edges", "spent"),
    [
        (
            [[0.25, -0.5], [0.75, 0.0], [0.25, 0.25]],
            [*PATH, (3, 0), (3, 2), (4, 1)],
            SpentBudget(3, 3, 2, (-0.5, 0.75)),
        ),
        # An edge between injected nodes counts once.
        ([[0.0, 1.0]] * 2, [*PATH, (3, 0), (3, 4)], SpentBudget(2, 2, 2, (0.0, 1.0))),
        ([], PATH, SpentBudget(0, 0, 0, None)),
        ([], [(2, 1), (1, 0)], SpentBudget(0, 0, 0, None)),
        ([[0.5, 0.5]], PATH, SpentBudget(1, 0, 0, (0.5, 0.5))),
    ],
)
def test_spent_counts_nodes_edges_and_features(
    injected: list[list[float]], edges: list[tuple[int, int]], spent: SpentBudget
) -> None:
    assert spent_budget(CLEAN, perturbed(injected, edges)) == spent


@pytest.mark.parametrize(
    ("edges", "added", "removed"),
    [([(0, 1)], 0, 1), ([*PATH, (2, 0)], 1, 0), ([(2, 0), (1, 0)], 1, 1), ([], 0, 2)],
)
def test_spent_counts_flips_both_ways(
    edges: list[tuple[int, int]], added: int, removed: int
) -> None:
    spent = spent_budget(CLEAN, perturbed([], edges))
    assert (spent.added_edges, spent.removed_edges) == (added, removed)
    assert spent.injected_edges == spent.injected_nodes == 0


def test_spent_measures_the_features_that_changed() -> None:
    x = X + torch.tensor([[0.0, 0.0], [0.25, -0.5], [0.0, 0.125]])
    spent = spent_budget(CLEAN, perturbed([[7.0, 7.0]], [*PATH, (3, 1)], x))
    assert (spent.changed_nodes, spent.largest_feature_change) == (2, 0.5)
    assert (spent.added_edges, spent.removed_edges) == (0, 0)


def test_a_graph_for_pyg() -> None:
    clean = CLEAN.clone()
    clean.y = torch.tensor([2, 0, 1])
    clean.test_mask = torch.tensor([True, False, True])
    clean.test_idx = torch.tensor([0, 2])
    clean.name = "drawn"
    graph = perturbed([[0.5, 0.5], [0.0, 1.0]], [*PATH, (3, 0), (4, 2)])
    data = replace(graph, clean=clean).to_data()
    assert data.validate()
    assert data.is_undirected()
    assert torch.equal(data.x, graph.x)
    assert data.y.tolist() == [2, 0, 1, -1, -1]
    assert data.test_mask.tolist() == [True, False, True, False, False]
    assert data.test_idx.tolist() == [0, 2]
    assert data.injected_mask.tolist() == [False] * 3 + [True] * 2
    assert clean.num_nodes == 3
    assert {*graph.to_data().keys()} == {"x", "edge_index", "injected_mask"}


def test_a_graph_for_pyg_can_be_saved_and_loaded(tmp_path: Path) -> None:
    data = replace(perturbed([[0.5, 0.5]], PATH), clean=CLEAN).to_data()
    torch.save(data, tmp_path / "data.pt")
    found = torch.load(tmp_path / "data.pt", weights_only=False)
    (batch,) = DataLoader([data], batch_size=1)
    for other in (found, batch):
        assert all(torch.equal(other[key], data[key]) for key in ("x", "edge_index"))


def test_budgets_and_results_are_frozen() -> None:
    graph = perturbed([], PATH)
    for result, key in (
        (graph, "num_original_nodes"),
        (spent_budget(CLEAN, graph), "injected_edges"),
        (Budget(5, 4, (-1.0, 1.0)), "max_injected_nodes"),
    ):
        with pytest.raises(FrozenInstanceError):
            setattr(result, key, 4)


@pytest.fixture
def model() -> nn.Module:
    """A model of mixed modes, part of it without gradient."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[1].eval()
    model[2].requires_grad_(requires_grad=False)
    return model


def state(model: nn.Module) -> tuple[list[bool], list[bool]]:
    modes = [module.training for module in model.modules()]
    return modes, [parameter.requires_grad for parameter in model.parameters()]


def test_frozen_restores_each_module_and_parameter(model: nn.Module) -> None:
    before = state(model)
    assert len(set(before[0])) == len(set(before[1])) == 2
    with frozen(model):
        assert not any(state(model)[0] + state(model)[1])
    assert state(model) == before


def test_frozen_restores_after_an_error(model: nn.Module) -> None:
    before = state(model)
    with pytest.raises(KeyError), frozen(model):
        raise KeyError
    assert state(model) == before


def test_frozen_lets_any_callable_pass() -> None:
    with frozen(lambda x, edge_index: x) as nothing:
        assert nothing is None
