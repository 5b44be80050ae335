import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.attacks import AutoInjection, AutoModification, Budget, PerturbedGraph, seeded
from robust_diffusion.attacks.ensemble import Ensemble, Keep
from robust_diffusion.models import GNNGuard
from robust_diffusion.system.artifact import Artifact
from tests.attacks.contract import clean, graph, same, trained
from tests.attacks.graphs import mean_of_neighbours

BUDGET = Budget(12, 12, (-0.94, 0.94))


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


class Noisy(nn.Module):
    """Samples in each pass, its labels too."""

    samples = True

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return trained()(x, edge_index) + 0.5 * torch.randn(x.size(0), 7)


def guard() -> nn.Module:
    torch.manual_seed(0)
    return GNNGuard(16, 16, 7, num_layers=2).eval()


def without_gradient(x: Tensor, edge_index: Tensor) -> Tensor:
    return mean_of_neighbours(x.detach(), edge_index)


INJECTION, MODIFICATION = AutoInjection(num_steps=4), AutoModification(num_steps=2)


def run(
    model: Callable[..., Tensor], keep: Keep | None = None, attack: Ensemble = INJECTION
) -> PerturbedGraph:
    generator = torch.Generator().manual_seed(0)
    given = (model, clean(graph()), graph().index_test, BUDGET, generator)
    with seeded(0):
        return attack(*given) if keep is None else attack.run(*given, keep=keep)


@pytest.mark.parametrize(
    ("attack", "model"),
    [
        pytest.param(INJECTION, trained, id="auto-gcn"),
        pytest.param(INJECTION, guard, id="auto-guard"),
        pytest.param(INJECTION, Noisy, id="auto-noisy"),
        pytest.param(INJECTION, lambda: without_gradient, id="auto-hidden"),
        pytest.param(MODIFICATION, lambda: without_gradient, id="modification-hidden"),
        pytest.param(MODIFICATION, Noisy, id="modification-noisy", marks=pytest.mark.slow),
        pytest.param(MODIFICATION, trained, id="modification-gcn", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_was_broken_off_goes_on_to_the_same_graph(
    attack: Ensemble, model: Callable[[], Callable[..., Tensor]]
) -> None:
    whole, uninterrupted = Memory(), run(model(), attack=attack)
    assert same(run(model(), whole, attack), uninterrupted)
    assert len(set(whole.computed)) == len(whole.computed) > 8
    for done in (1, 5, len(whole.computed) - 1):
        memory = Memory(may_compute=done)
        with pytest.raises(KilledError):
            run(model(), memory, attack)
        memory.may_compute = 1000
        resumed = run(model(), memory, attack)
        assert memory.computed == whole.computed
        assert same(resumed, uninterrupted)
        assert list(resumed.part_accuracy.items()) == list(uninterrupted.part_accuracy.items())
        assert resumed.part == uninterrupted.part


def test_a_part_that_was_given_up_is_given_up_again(caplog: pytest.LogCaptureFixture) -> None:
    memory, told = Memory(), list[int]()
    for _ in range(2):
        with caplog.at_level(logging.WARNING):
            run(without_gradient, memory, AutoInjection(num_steps=32))
        told.append(caplog.text.count("given up"))
        caplog.clear()
    searches = sum("search" in name for name in memory.computed)
    assert told == [len(memory.computed) - searches] * 2
    assert told[0] > 0


def test_nothing_to_spend_runs_no_part() -> None:
    def never(name: str, compute: Callable[[], Artifact]) -> Artifact:
        raise AssertionError(name)

    attack, data = AutoInjection(num_steps=4), clean(graph())
    empty = Budget(0, 12, (-0.94, 0.94))
    found = attack.run(trained(), data, graph().index_test, empty, torch.Generator(), keep=never)
    assert same(found, PerturbedGraph(graph().x, graph().edge_index, 200))
    assert not found.part_accuracy
