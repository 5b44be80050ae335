"""Attacks of many parts: the strongest wins, and what was broken off goes on."""

import copy
import logging
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.attacks import (
    AutoInjection,
    AutoModification,
    Budget,
    PerturbedGraph,
    RandomFlip,
    seeded,
    spent_budget,
)
from robust_diffusion.attacks.ensemble import Ensemble, Keep, Parts
from robust_diffusion.attacks.injection.edge_placement import Placement
from robust_diffusion.models import GNNGuard
from robust_diffusion.system.artifact import Artifact
from tests.attacks.contract import clean, graph, make, names, problem, run, same, trained
from tests.attacks.graphs import nan_gradient, rounded, without_gradient

STEPS = 3
INJECTED = Budget(12, 12, (-0.94, 0.94), node_ratio=0.2, edge_ratio=0.2)
MODIFIED = Budget(0, 0, (-0.94, 0.94), node_ratio=0.2, edge_ratio=0.2, epsilon=0.2)


def accuracy(model: Callable[..., Tensor], perturbed: PerturbedGraph) -> float:
    return problem(model).right(perturbed.x, perturbed.edge_index) / 60


@cache
def guard() -> GNNGuard:
    """Its own gradient leaves out the pruning, which its adaptive form passes through."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GNNGuard(16, 16, 7, num_layers=2).eval()


@cache
def attacked(model: Callable[..., Tensor]) -> PerturbedGraph:
    return run(AutoModification(num_steps=STEPS), model=model, budget=MODIFIED)


def test_the_winner_is_the_part_of_the_lowest_accuracy() -> None:
    injected = run(AutoInjection(num_steps=4), budget=INJECTED)
    for found, parts in ((injected, 14), (attacked(trained()), 1 + 1 + 6 + 1)):
        assert len(found.part_accuracy) == parts
        lowest = min(found.part_accuracy.values())
        assert found.part_accuracy[found.part] == lowest == accuracy(trained(), found)


HIDING = [rounded, without_gradient, nan_gradient]


@pytest.mark.parametrize(
    ("attack", "budget"),
    [(AutoInjection(num_steps=24), INJECTED), (AutoModification(num_steps=12), MODIFIED)],
    ids=["injection", "modification"],
)
@pytest.mark.parametrize("model", HIDING)
def test_the_search_catches_models_that_hide_their_gradient(
    attack: Ensemble, budget: Budget, model: Callable[..., Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = run(attack, model=model, budget=budget)
    assert found.part.startswith("search") or found.part.endswith("exchange")
    chance = {"injection": 0.8, "modification": accuracy(model, run(RandomFlip(), budget=MODIFIED))}
    assert accuracy(model, found) < chance[attack.kind] - 0.05
    assert ("dropped" in caplog.text) == (model is not rounded)


def test_it_stops_where_no_target_is_left() -> None:
    found = run(
        AutoInjection(num_steps=80),
        model=lambda x, edges: x.index_add(0, edges[1], x[edges[0]])[:, :7],
        budget=Budget(30, 10, (-9.0, 9.0)),
    )
    assert found.part_accuracy[found.part] == 0
    assert len(found.part_accuracy) < 14


class Noisy(nn.Module):
    """Samples in each pass, its labels too."""

    samples = True

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return trained()(x, edge_index) + 0.5 * torch.randn(x.size(0), 7)


def test_a_model_that_samples_is_judged_by_its_mean() -> None:
    """Noise alone flips the targets of a single pass; of the mean, the attack has to."""
    torch.manual_seed(0)
    noisy = Noisy().forward  # which does not say that it samples
    perturbed = run(AutoInjection(num_steps=8), model=noisy, budget=INJECTED)
    assert any(name.startswith("adaptive") for name in perturbed.part_accuracy)
    assert accuracy(trained(), perturbed) < 0.85


@pytest.mark.slow
def test_a_guard_is_attacked_through_either_form() -> None:
    before = copy.deepcopy(guard().guard)
    found = run(AutoInjection(num_steps=2), model=guard(), budget=INJECTED)
    forms = [name.split(":")[0] for name in found.part_accuracy]
    assert forms.count("adaptive") == forms.count("white box") == 12
    forms = [name.split(":")[0] for name in attacked(guard()).part_accuracy]
    assert (forms.count("adaptive"), forms.count("white box")) == (1 + 6, 1)
    assert guard().guard == before


POISONING = {"metattack", "meta_grbcd"}  # which it has no part of
SINGLE = sorted(set(names("modification")) - {"auto_modification", *POISONING})


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
    single = accuracy(model, run(make(name, **full), model=model, budget=MODIFIED))
    assert accuracy(model, attacked(model)) <= single


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


class KilledError(Exception):
    pass


class Memory:
    """Keeps parts, and dies before one more than it may compute."""

    def __init__(self, may_compute: int = 1000) -> None:
        self.kept: dict[str, Artifact] = {}
        self.computed: list[str] = []
        self.may_compute = may_compute

    def __call__(self, name: str, compute: Callable[[], Artifact]) -> Artifact:
        if name not in self.kept:
            if len(self.computed) == self.may_compute:
                raise KilledError
            self.kept[name] = compute()
            self.computed.append(name)
        return self.kept[name]


INJECTION, MODIFICATION = AutoInjection(num_steps=2), AutoModification(num_steps=2)


def resumable(
    model: Callable[..., Tensor], keep: Keep | None = None, attack: Ensemble = INJECTION
) -> PerturbedGraph:
    generator = torch.Generator().manual_seed(0)
    given = (model, clean(graph()), graph().index_test, INJECTED, generator)
    with seeded(0):
        return attack(*given) if keep is None else attack.run(*given, keep=keep)


def test_the_ascents_go_on_where_a_search_leaves_next_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def search(_: AutoInjection, parts: Parts, words: str, placement: Placement) -> None:
        parts.accuracy[words] = 0.005

    monkeypatch.setattr(AutoInjection, "_search", search)
    memory = Memory()
    resumable(trained(), memory, AutoInjection(num_steps=0))
    assert len({name.split(": ", 1)[1] for name in memory.computed}) == 12


@pytest.mark.parametrize(
    ("attack", "model"),
    [
        pytest.param(INJECTION, trained, id="auto-gcn"),
        pytest.param(INJECTION, Noisy, id="auto-noisy", marks=pytest.mark.slow),
        pytest.param(INJECTION, lambda: without_gradient, id="auto-hidden"),
        pytest.param(MODIFICATION, lambda: without_gradient, id="modification-hidden"),
        pytest.param(MODIFICATION, trained, id="modification-gcn", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_was_broken_off_goes_on_to_the_same_graph(
    attack: Ensemble, model: Callable[[], Callable[..., Tensor]]
) -> None:
    whole, uninterrupted = Memory(), resumable(model(), attack=attack)
    assert same(resumable(model(), whole, attack), uninterrupted)
    assert len(set(whole.computed)) == len(whole.computed) > 8
    for done in (1, len(whole.computed) // 2):
        memory = Memory(may_compute=done)
        with pytest.raises(KilledError):
            resumable(model(), memory, attack)
        memory.may_compute = 1000
        resumed = resumable(model(), memory, attack)
        assert memory.computed == whole.computed
        assert same(resumed, uninterrupted)
        assert list(resumed.part_accuracy.items()) == list(uninterrupted.part_accuracy.items())
        assert resumed.part == uninterrupted.part
