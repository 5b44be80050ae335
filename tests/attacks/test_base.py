from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import nn

from robust_diffusion.attacks import PerturbedGraph, SpentBudget
from robust_diffusion.attacks.base import frozen


def perturbed(injected: list[list[float]], edges: list[tuple[int, int]]) -> PerturbedGraph:
    """Three original nodes 0 - 1 - 2, then injected ones."""
    x = torch.cat([torch.full((3, 2), 9.0), torch.tensor(injected).reshape(-1, 2)])
    half = torch.tensor([(0, 1), (1, 2), *edges]).T
    return PerturbedGraph(x, torch.cat([half, half.flip(0)], 1), 3)


def test_spent_counts_injected_nodes_edges_and_features() -> None:
    graph = perturbed([[0.25, -0.5], [0.75, 0.0], [0.25, 0.25]], [(3, 0), (3, 2), (4, 1)])
    assert graph.spent == SpentBudget(3, 3, 2, (-0.5, 0.75))


def test_spent_counts_an_edge_between_injected_nodes_once() -> None:
    graph = perturbed([[0.0, 1.0], [0.0, 1.0]], [(3, 0), (3, 4)])
    assert graph.spent == SpentBudget(2, 2, 2, (0.0, 1.0))


def test_an_untouched_graph_spends_nothing() -> None:
    assert perturbed([], []).spent == SpentBudget(0, 0, 0, None)


def test_injected_nodes_without_edges_are_spent() -> None:
    assert perturbed([[0.5, 0.5]], []).spent == SpentBudget(1, 0, 0, (0.5, 0.5))


def test_results_are_frozen() -> None:
    graph = perturbed([], [])
    with pytest.raises(FrozenInstanceError):
        graph.num_original_nodes = 4  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        graph.spent.injected_edges = 0  # type: ignore[misc]


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
