"""What an attack costs is counted at the model; an ensemble that is broken off goes on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from robust_diffusion import PGD, AutoInjection, Budget, evaluate
from robust_diffusion.attacks import GRBCD, PRBCD
from robust_diffusion.attacks.base import Problem
from robust_diffusion.attacks.injection import auto
from robust_diffusion.evaluation.flags import Attempt, Task
from robust_diffusion.evaluation.perturbed import Attacker, AttackRun
from robust_diffusion.models import GCN, GCNSVD
from robust_diffusion.records.store import ArtifactStore
from tests.attacks.contract import graph, same, trained
from tests.drawn import CLASSES, FEATURES, drawn_data

DATA = drawn_data()
BUDGET = Budget(4, 5, edge_ratio=0.5)


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = GCN(FEATURES, 8, CLASSES)
        self.passes = 0

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        return self.model(x, edge_index)  # type: ignore[no-any-return]


class ByName(PGD):
    """Calls the model by the names of its arguments first."""

    def inject(self, problem: Problem, *rest: Any) -> Any:
        problem.model(x=problem.x, edge_index=problem.edge_index)
        return super().inject(problem, *rest)


@pytest.mark.slow  # the checker of shapes looks at every pass
def test_every_forward_pass_of_an_attack_counts_and_no_other() -> None:
    counts = []
    for attack in (PGD(num_steps=3), PGD(num_steps=13), ByName(num_steps=3)):
        report = evaluate(model := Counted(), DATA, attacks=attack, budget=BUDGET)
        counts.append((model.passes, report["pgd"].effort["forwards"]))
        assert report.to_frame().forwards.tolist()[-1] == counts[-1][1]
    few, many, by_name = counts
    assert [n - few[i] for i, n in enumerate(many)] == [10, 10]
    assert [n - few[i] for i, n in enumerate(by_name)] == [1, 1]


def test_the_trace_falls_to_what_the_attack_reached_and_leaves_weighed_edges_out() -> None:
    model = Counted().model
    report = evaluate(model, DATA, attacks=[AutoInjection(num_steps=8), PRBCD()], budget=BUDGET)
    for name in ("auto", "prbcd"):
        of = report[name]
        forwards, seconds, reached = zip(*of.effort["trace"], strict=True)
        assert list(forwards) == sorted(set(forwards))
        assert list(seconds) == sorted(seconds)
        assert list(reached) == sorted(set(reached), reverse=True)
        assert forwards[-1] <= of.effort["forwards"]
        assert reached[-1] == min(of.accuracy, report.clean_accuracy)


class Beyond(GRBCD):
    """Tries more flips than it may make."""

    def modify(self, problem: Problem, budget: Budget, generator: torch.Generator) -> Any:
        _, edges = super().modify(problem, replace(budget, edge_ratio=0.2), generator)
        problem.model(problem.x, edges)
        return super().modify(problem, budget, generator)


def test_the_trace_leaves_out_more_flips_than_the_budget_allows() -> None:
    attack, budget = Beyond(num_steps=10), Budget(edge_ratio=0.1)
    found = evaluate(trained(), graph(), attacks=attack, budget=budget)[attack.name]
    assert found.effort["trace"][-1][2] == found.accuracy


def test_passes_of_the_adaptive_form_count() -> None:
    torch.manual_seed(0)
    model, given = GCNSVD(FEATURES, 8, CLASSES), {"attacks": PGD(num_steps=5), "budget": BUDGET}
    found = [evaluate(model, DATA, threat=of, **given) for of in ("white_box", "adaptive")]
    assert found[0]["pgd"].effort["forwards"] == found[1]["pgd"].effort["forwards"] > 5


def attack(folder: Path) -> Attempt:
    task = Task(graph(), graph().index_test, torch.device("cpu"))
    run = AttackRun("auto", AutoInjection(num_steps=8), trained(), "state", {}, "", "auto")
    return Attacker(task, Budget(12, 12, (-0.94, 0.94)), ArtifactStore(folder))(run)


def entries(folder: Path) -> list[str]:
    return sorted(path.name.split("-")[0] for path in folder.iterdir())


@pytest.fixture
def ascents(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """From here on notes the ascents, and is interrupted at one of them."""
    climb = auto.climb

    def counted(at: int = 0) -> list[int]:
        calls: list[int] = []

        def ascent(*arguments: Any) -> Any:
            calls.append(len(calls) + 1)
            if calls[-1] == at:
                raise KeyboardInterrupt
            return climb(*arguments)

        monkeypatch.setattr(auto, "climb", ascent)
        return calls

    return counted


def test_an_attack_that_was_broken_off_is_taken_up_where_it_was(
    ascents: Callable[..., list[int]], tmp_path: Path
) -> None:
    calls = ascents()
    whole = attack(tmp_path / "another")
    assert entries(tmp_path / "another") == ["graph"]
    total = len(calls)

    ascents(6)
    with pytest.raises(KeyboardInterrupt):
        attack(tmp_path / "store")
    assert entries(tmp_path / "store").count("part") >= 5

    calls = ascents()
    resumed = attack(tmp_path / "store")
    assert len(calls) == total - 5
    assert not resumed.reused
    assert same(resumed.graph, whole.graph)
    assert resumed.graph.part_accuracy == whole.graph.part_accuracy
    assert resumed.accuracy == whole.accuracy
    again = resumed.effort["forwards"] - whole.effort["forwards"]
    assert 0 <= again <= 3  # what the problem asks of the model once
    reached = [[step[2] for step in of.effort["trace"]] for of in (resumed, whole)]
    assert reached[0] == reached[1]
    assert entries(tmp_path / "store") == ["graph"]
