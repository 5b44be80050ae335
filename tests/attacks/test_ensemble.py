"""Attacks of many parts: the strongest wins, and what was broken off goes on."""

import copy
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

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
from robust_diffusion.attacks.audit import audit
from robust_diffusion.attacks.ensemble import Ensemble, Keep, Parts
from robust_diffusion.attacks.injection import auto, cover
from robust_diffusion.attacks.injection.constants import AUTO
from robust_diffusion.models import MLP, GNNGuard
from robust_diffusion.models.adaptive import SwitchableGradient
from robust_diffusion.models.victim import Victim
from robust_diffusion.system.artifact import Artifact
from tests.attacks.contract import clean, graph, make, names, run, same, trained, victim_and_task
from tests.attacks.graphs import nan_gradient, rounded, without_gradient
from tests.graphs import without_type_checks

STEPS = 3
INJECTED = Budget(12, 12, (-0.94, 0.94), node_ratio=0.2, edge_ratio=0.2)
MODIFIED = Budget(0, 0, (-0.94, 0.94), node_ratio=0.2, edge_ratio=0.2, epsilon=0.2)


def accuracy(model: Callable[..., Tensor], perturbed: PerturbedGraph) -> float:
    _, task = victim_and_task(model)
    with torch.no_grad():
        return task.accuracy(model(perturbed.x, perturbed.edge_index))


@cache
def guard() -> GNNGuard:
    """Its own gradient leaves out the pruning, which its adaptive form passes through."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GNNGuard(16, 16, out_channels=7, num_layers=2).eval()


@cache
def attacked(model: Callable[..., Tensor]) -> PerturbedGraph:
    return run(AutoModification(num_steps=STEPS), model=model, budget=MODIFIED)


def test_the_winner_is_the_part_of_the_lowest_accuracy() -> None:
    injected = run(AutoInjection(num_steps=4), budget=INJECTED)
    for found, parts in ((injected, 15), (attacked(trained()), 1 + 1 + 6 + 1)):
        assert len(found.part_accuracy) == parts
        lowest = min(found.part_accuracy.values())
        assert found.part_accuracy[found.part] == lowest == accuracy(trained(), found)


def kinds(found: PerturbedGraph) -> set[str]:
    """Kinds of parts: a cover, a search without gradients, and the ascents by their edges.

    An exchange follows whenever there are gradient steps.
    """
    names = (name.split(",")[0].split(": ") for name in found.part_accuracy)
    names = (name for name in names if name[1] != "exchange")
    return {"search" if form == "search" else edges for form, edges in names}


ASCENTS = {"search", "equal", "apart"}


@pytest.mark.parametrize(
    ("budget", "parts"),
    [
        (Budget(5, 4, max_injected_edges=3), {"cover"}),  # two nodes have no edge
        (Budget(11, 1), {"cover"}),
        (Budget(12, 1), {"cover", *ASCENTS}),
        (Budget(11, 11), ASCENTS),
    ],
)
@pytest.mark.parametrize("words", [False, True])
def test_the_budget_says_which_parts_run_and_none_exceeds_it(
    budget: Budget, parts: set[str], words: bool
) -> None:
    """All of 60 targets are correctly classified."""
    attack, data = AutoInjection(num_steps=2 if parts == {"cover"} else 0), clean(graph())
    budget = replace(budget, feature_limits=(-0.94, 0.94))
    if words:
        data.x = (data.x > 0).float()
        budget = replace(budget, feature_limits=(0.0, 1.0), features="binary", max_words=3)
    found = run(attack, data=data, budget=budget)
    assert kinds(found) == parts
    limits = budget.bounds
    broken = audit(data, found, kind="injection", target_nodes=graph().index_test, **limits)
    assert not [rule for rule in broken if rule.level == "error"]


@pytest.mark.parametrize(("nodes", "parts"), [(11, {"cover"}), (12, ASCENTS)])
def test_a_cover_of_many_targets_is_left_to_ascents_if_these_run(
    nodes: int, parts: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "AUTO", replace(AUTO, most_covered=59))
    steps = 2 if nodes < 12 else 0
    attack, budget = AutoInjection(num_steps=steps), Budget(nodes, 1, feature_limits=(-0.94, 0.94))
    assert kinds(run(attack, data=clean(graph()), budget=budget)) == parts


@pytest.mark.parametrize(("targets", "right"), [(1, 1), (60, 0)])
def test_a_single_target_or_none_that_is_right_is_no_error(targets: int, right: int) -> None:
    data, nodes = clean(graph()), graph().index_test[:targets]
    if not right:
        data.y = (trained()(data.x, data.edge_index).argmax(1) + 1) % 7
    budget = Budget(1, 1, (-9.0, 9.0))
    found = run(AutoInjection(num_steps=2), data=data, targets=nodes, budget=budget)
    assert spent_budget(data, found).injected_edges == 1


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


def test_ensemble_stops_without_targets() -> None:
    found = run(
        AutoInjection(num_steps=80),
        model=lambda x, edges: x.index_add(0, edges[1], x[edges[0]])[:, :7],
        budget=Budget(30, 10, (-9.0, 9.0)),
    )
    assert found.part_accuracy[found.part] == 0
    assert len(found.part_accuracy) < 14


class Rounded(SwitchableGradient, nn.Module):
    """Its own gradient is 0, which its adaptive form passes through."""

    gradient = "exact"

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        logits: Tensor = trained()(x, edge_index)
        if self.gradient == "straight_through":
            return logits + ((50 * logits).round() / 50 - logits).detach()
        return (50 * logits).round() / 50


def test_a_form_without_gradient_leaves_few_edges_to_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auto, "AUTO", replace(AUTO, most_rounds=1))
    monkeypatch.setattr(cover, "AUTO", replace(AUTO, exchange_share=0))
    memory, budget = Memory(), Budget(2, 6, (-0.94, 0.94))
    found = resumable(Rounded(), memory, AutoInjection(num_steps=24), budget)
    assert found.part.startswith("adaptive")
    runs = Counter(name.split(": ")[1] for name in memory.computed)
    assert runs["white box"] == 1 + 4  # a cover, then four ascents, each once
    assert runs["adaptive"] > 1 + 4 * 3
    assert len(found.part_accuracy) == 2 * (1 + 4) + 2  # a search and an exchange


class Noisy(nn.Module):
    """Samples in each pass, its labels too."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return trained()(x, edge_index) + 0.5 * torch.randn(x.size(0), 7)


def test_a_model_that_samples_is_judged_by_its_mean() -> None:
    """Noise alone flips the targets of a single pass; of the mean, the attack has to."""
    torch.manual_seed(0)
    noisy = Victim.probe(Noisy(), graph().x, graph().edge_index)
    perturbed = run(AutoInjection(num_steps=8), model=noisy, budget=INJECTED)
    assert any(name.startswith("adaptive") for name in perturbed.part_accuracy)
    assert accuracy(trained(), perturbed) < 0.85


@pytest.mark.slow
def test_a_guard_is_attacked_through_either_form() -> None:
    before = copy.deepcopy(guard().guard)
    found = run(AutoInjection(num_steps=2), model=guard(), budget=INJECTED)
    forms = [name.split(":")[0] for name in found.part_accuracy]
    # Exchanges only run through the adaptive form.
    assert forms.count("adaptive") - 1 == forms.count("white box") == 12
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
    model: Callable[..., Tensor],
    keep: Keep | None = None,
    attack: Ensemble = INJECTION,
    budget: Budget = INJECTED,
) -> PerturbedGraph:
    given = (*victim_and_task(model), budget, torch.Generator().manual_seed(0))
    with seeded(0):
        return attack(*given) if keep is None else attack(*given, keep=keep)


def test_the_ascents_go_on_where_a_search_leaves_next_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Parts.run

    def searched(parts: Parts, name: str, *rest: Any) -> Any:
        if not name.startswith("search"):
            return run(parts, name, *rest)
        parts.accuracy[name] = 0.005
        return None

    monkeypatch.setattr(Parts, "run", searched)
    memory = Memory()
    resumable(trained(), memory, AutoInjection(num_steps=0))
    assert len({name.split(": ", 1)[1] for name in memory.computed}) == 12


SPARSE = Budget(2, 6, (-0.94, 0.94))


@pytest.mark.parametrize(
    ("attack", "model", "budget"),
    [
        pytest.param(INJECTION, trained, INJECTED, id="auto-gcn"),
        pytest.param(INJECTION, trained, SPARSE, id="auto-sparse"),
        pytest.param(MODIFICATION, lambda: without_gradient, INJECTED, id="modification-hidden"),
    ],
)
def test_a_run_that_breaks_off_after_each_part_ends_at_the_same_graph(
    attack: Ensemble,
    model: Callable[[], Callable[..., Tensor]],
    budget: Budget,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auto, "AUTO", replace(AUTO, most_rounds=1))
    uninterrupted = resumable(model(), attack=attack, budget=budget)
    memory, resumed = Memory(may_compute=0), None
    while resumed is None:
        memory.may_compute += 1
        with suppress(KilledError):
            resumed = resumable(model(), memory, attack, budget)
    assert memory.may_compute == len(memory.computed) > 8
    assert same(resumed, uninterrupted)
    assert list(resumed.part_accuracy.items()) == list(uninterrupted.part_accuracy.items())
    assert resumed.part == uninterrupted.part


@pytest.mark.parametrize(
    ("lowest", "gain", "rounds"),
    [(0.9, 1 / 268, 16), (0.9, 1 / 2000, 3), (0.9, 0, 3), (0.005, 0, 3)],
)
def test_gains_of_less_than_one_target_in_a_thousand_end_the_attack(
    lowest: float, gain: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, judge = SimpleNamespace(right=lambda _: 1), SimpleNamespace(clean_logits=None)
    parts: Any = SimpleNamespace(budget=INJECTED, task=task, judge=judge, forms={}, lowest=lowest)

    track = None, SimpleNamespace(found=SimpleNamespace(features=None))

    def gains(*_: Any) -> list[Any]:
        parts.lowest -= gain
        return [track]

    continued = Mock(side_effect=gains)
    monkeypatch.setattr(auto, "_starts", lambda _: [])
    monkeypatch.setattr(auto, "_best", lambda *_: [])
    monkeypatch.setattr(auto, "_continued", continued)
    monkeypatch.setattr(AutoInjection, "_exchanged", lambda *_: None)
    with without_type_checks():
        AutoInjection().run_parts(parts)
    assert continued.call_count == len(AUTO.rungs) + rounds


def test_passes_are_forecast_by_edges_classes_and_whether_the_model_reads_edges() -> None:
    attack, (victim, task) = AutoInjection(), victim_and_task(trained())
    right, most = task.right(victim.clean_logits), task.targets.numel()

    def expected(edges: int, model: Victim = victim) -> int:
        budget = Budget(-(-edges // most), most, max_injected_edges=edges)
        return attack.expected_passes(budget, task, model) or 0

    cover, both, ascents = expected(right // 6), expected(right), expected(3 * right)
    assert 0 < min(cover, ascents) <= max(cover, ascents) < both
    assert expected(5 * right) < ascents  # so many edges soon misclassify every target
    blind = Victim(MLP(16, 16, out_channels=7).eval(), task.x, task.edge_index)
    assert 0 < expected(3 * right, blind) < 2 / 3 * ascents
    assert AutoInjection(num_steps=0).expected_passes(Budget(2, 5), task, victim) is None
