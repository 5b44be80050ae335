import logging
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

from robust_diffusion.attacks import AutoModification, Budget, PerturbedGraph, spent_budget
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.models import MLP, GNNGuard
from tests.attacks.contract import clean, graph, make, names, run, trained
from tests.attacks.graphs import mean_of_neighbours

STEPS = 5
BUDGET = Budget(0, 0, (-0.94, 0.94), node_ratio=0.2, edge_ratio=0.2, epsilon=0.2)


def accuracy(model: Callable[..., Tensor], perturbed: PerturbedGraph) -> float:
    problem = Problem("any", model, clean(graph()), graph().index_test)
    return problem.right(perturbed.x, perturbed.edge_index) / 60


@cache
def guard() -> GNNGuard:
    """Its own gradient leaves out the pruning, which its adaptive form passes through."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GNNGuard(16, 16, 7, num_layers=2).eval()


def rounded(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """A model that hides its gradient: the slope of rounding is 0."""
    logits = mean_of_neighbours(x, edge_index, edge_weight)
    return (logits * 50).round() / 50


@cache
def attacked(model: Callable[..., Tensor]) -> PerturbedGraph:
    return run(AutoModification(num_steps=STEPS), model=model, budget=BUDGET)


SINGLE = sorted(set(names("modification")) - {"auto_modification"})
PARTS = {
    "prbcd": "prbcd, prob_margin",
    "grbcd": "grbcd, masked",
    "lrbcd": "lrbcd, prob_margin",
    "lgrbcd": "lgrbcd, masked",
}


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(trained(), id="gcn"),
        pytest.param(guard(), id="guard", marks=pytest.mark.slow),
        pytest.param(rounded, id="rounded"),
    ],
)
def test_no_single_attack_is_stronger(model: Callable[..., Tensor], name: str) -> None:
    full = {"block_size": 50_000, "num_steps": STEPS} if name.endswith("rbcd") else {}
    full |= {"num_steps": STEPS} if name == "pgd_modification" else {}
    single = accuracy(model, run(make(name, **full), model=model, budget=BUDGET))
    found = attacked(model)
    assert accuracy(model, found) <= single
    assert found.part_accuracy[f"white box: {PARTS.get(name, name)}"] == single


def test_the_winner_is_the_part_of_the_lowest_accuracy() -> None:
    found = attacked(trained())
    parts = found.part_accuracy
    assert parts[found.part] == min(parts.values()) == accuracy(trained(), found)
    assert len(parts) == 3 + 1 + 12 + 6 + 1


def test_the_whole_budget_is_spent() -> None:
    spent = spent_budget(clean(graph()), attacked(trained()))
    assert spent.added_edges > 0
    assert spent.changed_nodes == 12
    assert spent.largest_feature_change > 0.19
    without = [Budget(0, 0, (-0.94, 0.94), node_ratio=0, edge_ratio=0.2, epsilon=0.2)]
    without += [Budget(0, 0, (-0.94, 0.94), node_ratio=0.2, edge_ratio=0, epsilon=0.2)]
    for budget in without:
        less = run(AutoModification(num_steps=STEPS), budget=budget)
        assert accuracy(trained(), less) > accuracy(trained(), attacked(trained()))


@pytest.mark.slow
def test_the_guard_is_attacked_through_its_adaptive_form() -> None:
    forms = [name.split(":")[0] for name in attacked(guard()).part_accuracy]
    assert forms.count("adaptive") == 12 + 6
    assert forms.count("white box") == 3 + 4


def without_weights(x: Tensor, edge_index: Tensor) -> Tensor:
    return mean_of_neighbours(x.detach(), edge_index)


def nan_gradient(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    total = x.sum() if edge_weight is None else x.sum() + edge_weight.sum()
    return mean_of_neighbours(x, edge_index, edge_weight) + (0 * total).sqrt()


@pytest.mark.parametrize("model", [rounded, without_weights, nan_gradient])
def test_the_search_catches_models_that_hide_their_gradient(
    model: Callable[..., Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = run(AutoModification(num_steps=20), model=model, budget=BUDGET)
    assert found.part.startswith("search")
    assert accuracy(model, found) < found.part_accuracy["white box: random_flip"] - 0.05
    assert ("given up" in caplog.text) == (model is not rounded)


def test_it_stops_where_no_target_is_left() -> None:
    budget = Budget(0, 0, (-0.94, 0.94), node_ratio=1.0, edge_ratio=1.0, epsilon=1.8)
    found = run(AutoModification(num_steps=20), budget=budget)
    assert found.part_accuracy[found.part] == 0
    assert "search: around the best" not in found.part_accuracy


def test_a_model_blind_to_edges_is_attacked_by_features() -> None:
    mlp = MLP(16, 8, 7, num_layers=2).eval()
    found = run(AutoModification(num_steps=STEPS), model=mlp, budget=BUDGET)
    assert found.part_accuracy["search: flips"] == 1
    assert "features" in found.part
    assert found.part_accuracy[found.part] < 1
