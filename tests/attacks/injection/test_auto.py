import copy
import logging
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import SPEIT, AutoInjection, Budget, PerturbedGraph
from robust_diffusion.attacks.audit import audit
from robust_diffusion.attacks.ensemble import Parts
from robust_diffusion.attacks.injection.auto import _placements
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.models import MLP, GNNGuard
from tests.attacks.contract import clean, graph, run, same, trained
from tests.attacks.graphs import mean_of_neighbours

LIMITS = (-0.94, 0.94)
BUDGET = Budget(12, 12, LIMITS)


def problem(model: Callable[..., Tensor]) -> Problem:
    return Problem("any", model, clean(graph()), graph().index_test)


def accuracy(model: Callable[..., Tensor], perturbed: PerturbedGraph) -> float:
    return problem(model).right(perturbed.x, perturbed.edge_index) / 60


@cache
def plain() -> PerturbedGraph:
    return run(AutoInjection(num_steps=24), budget=BUDGET)


def test_the_winner_is_the_part_of_the_lowest_accuracy() -> None:
    parts = plain().part_accuracy
    assert plain().part == min(parts, key=lambda name: parts[name])
    assert parts[plain().part] == accuracy(trained(), plain())
    assert {name.split(":")[0] for name in parts} == {"search", "white box"}
    assert len(parts) == 14
    assert all(0 <= value <= 1 for value in parts.values())


def test_it_spends_less_where_more_does_less_harm() -> None:
    """A flow that slows down with the degree squared: each further edge protects the target."""

    def slowed(x: Tensor, edge_index: Tensor) -> Tensor:
        degree = edge_index[1].bincount(minlength=x.size(0))[:, None].clamp_min(1)
        before = edge_index[:, (edge_index < 200).all(0)][1].bincount(minlength=x.size(0))[:, None]
        slow = 9.0 ** (before - degree + 1)
        return x[:, :7] + 3 * slow * mean_of_neighbours(x, edge_index)

    budget = Budget(12, 30, (-0.94, 0.94))
    perturbed = run(AutoInjection(num_steps=16), model=slowed, budget=budget)
    assert perturbed.edge_index.size(1) - graph().edge_index.size(1) < 2 * 360 / 3


@pytest.mark.parametrize("nodes", [1, 5, 6, 50])
def test_every_spending_is_within_the_budget(nodes: int) -> None:
    budget = Budget(nodes, 12, LIMITS)
    tried = problem(trained())
    parts = Parts(tried, torch.Generator().manual_seed(0), lambda _, compute: compute())
    for _, _, placement in _placements(parts, budget):
        perturbed = PerturbedGraph(
            torch.cat([tried.x, tried.x[:nodes]]), placement.edges(tried.edge_index), 200
        )
        assert not audit(
            clean(graph()),
            perturbed,
            kind="injection",
            max_injected_nodes=nodes,
            max_edges_per_injected_node=12,
            target_nodes=tried.targets,
        )


def test_it_is_stronger_than_a_single_attack() -> None:
    single = run(SPEIT(num_steps=100), budget=BUDGET)
    assert accuracy(trained(), plain()) <= accuracy(trained(), single)


def test_it_goes_on_as_long_as_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps of 0.1 leave most targets of a model that is slow to move."""

    def slow(x: Tensor, edge_index: Tensor) -> Tensor:
        return x[:, :7] + 0.5 * mean_of_neighbours(x, edge_index)

    reached = {}
    for rounds in (0, 1, 8):
        monkeypatch.setattr("robust_diffusion.attacks.injection.auto.MOST_ROUNDS", rounds)
        perturbed = run(AutoInjection(num_steps=8), model=slow, budget=BUDGET)
        reached[rounds] = accuracy(slow, perturbed)
    assert reached[8] < reached[1] - 0.01 < reached[0] - 0.02


def test_it_stops_where_no_target_is_left() -> None:
    def swayed(x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index
        return x.index_add(0, dst, x[src])[:, :7]

    budget = Budget(30, 10, (-9.0, 9.0))
    perturbed = run(AutoInjection(num_steps=80), model=swayed, budget=budget)
    assert perturbed.part_accuracy[perturbed.part] == 0
    assert len(perturbed.part_accuracy) < 14


def test_a_model_blind_to_edges_stays_as_it_is() -> None:
    mlp = MLP(16, 8, 7, num_layers=2).eval()
    perturbed = run(AutoInjection(num_steps=16), model=mlp, budget=BUDGET)
    assert set(perturbed.part_accuracy.values()) == {1.0}


def through_rounding(x: Tensor, edge_index: Tensor) -> Tensor:
    """A model that hides its gradient: the slope of rounding is 0."""
    return mean_of_neighbours((x * 50).round() / 50, edge_index)


def without_gradient(x: Tensor, edge_index: Tensor) -> Tensor:
    return mean_of_neighbours(x.detach(), edge_index)


def nan_gradient(x: Tensor, edge_index: Tensor) -> Tensor:
    return mean_of_neighbours(x, edge_index) + (0 * x.sum()).sqrt()


@pytest.mark.parametrize("model", [through_rounding, without_gradient, nan_gradient])
def test_the_search_catches_models_that_hide_their_gradient(
    model: Callable[..., Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        perturbed = run(AutoInjection(num_steps=40), model=model, budget=BUDGET)
    assert perturbed.part.startswith("search")
    assert accuracy(model, perturbed) < 0.75
    assert ("given up" in caplog.text) == (model is not through_rounding)


def test_a_model_that_samples_is_judged_by_its_mean() -> None:
    """Noise alone flips the targets of a single pass; of the mean, the attack has to."""

    def noisy(x: Tensor, edge_index: Tensor) -> Tensor:
        return trained()(x, edge_index) + 0.5 * torch.randn(x.size(0), 7)

    torch.manual_seed(0)
    perturbed = run(AutoInjection(num_steps=8), model=noisy, budget=BUDGET)
    assert any(name.startswith("adaptive") for name in perturbed.part_accuracy)
    assert accuracy(trained(), perturbed) < 0.85


def test_a_guard_is_attacked_through_either_form() -> None:
    torch.manual_seed(0)
    guard = GNNGuard(16, 16, 7, num_layers=2).eval()
    before = copy.deepcopy(guard.guard)
    perturbed = run(AutoInjection(num_steps=8), model=guard, budget=BUDGET)
    forms = [name.split(":")[0] for name in perturbed.part_accuracy]
    assert forms.count("adaptive") == forms.count("white box") == 12
    assert guard.guard == before


def test_true_labels_are_what_it_drives_down() -> None:
    data = Data(x=graph().x, edge_index=graph().edge_index, y=graph().y)
    perturbed = run(AutoInjection(num_steps=8), data=data, budget=BUDGET)
    logits = trained()(perturbed.x, perturbed.edge_index)
    hits = (logits[graph().index_test].argmax(1) == graph().y[graph().index_test]).double().mean()
    assert perturbed.part_accuracy[perturbed.part] == pytest.approx(hits.item())


def test_steps_of_0_leave_the_search_and_the_starts() -> None:
    perturbed = run(AutoInjection(num_steps=0), budget=BUDGET)
    assert len(perturbed.part_accuracy) == 14
    assert same(perturbed, run(AutoInjection(num_steps=0), budget=BUDGET))
