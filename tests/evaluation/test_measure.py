"""What an attack costs is counted at the model; an ensemble that is broken off goes on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from robust_diffusion import Budget, RobustnessReport, evaluate, fit
from robust_diffusion.attacks import GRBCD, PGD, PRBCD, AutoInjection, Task
from robust_diffusion.attacks.ensemble import Ensemble, Parts
from robust_diffusion.attacks.injection import part
from robust_diffusion.evaluation import WhiteBox, evaluate_model
from robust_diffusion.evaluation.flags import AttackResult
from robust_diffusion.evaluation.measure import Bench, measure
from robust_diffusion.evaluation.saved_graphs import measured_again
from robust_diffusion.models import GCN, GCNSVD
from robust_diffusion.models.victim import Victim
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.artifact import Artifact
from tests.attacks.contract import graph, same, trained
from tests.drawn import CLASSES, FEATURES, drawn_data

DATA = drawn_data()
BUDGET = Budget(4, 5, edge_ratio=0.5)


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = GCN(FEATURES, 8, out_channels=CLASSES)
        self.passes = 0

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        return self.model(x, edge_index)  # type: ignore[no-any-return]


@pytest.mark.slow  # the checker of shapes looks at every pass
def test_effort_forwards() -> None:
    counts = []
    for attack in (PGD(num_steps=3), PGD(num_steps=13)):
        report = evaluate(model := Counted(), DATA, attacks=attack, budget=BUDGET)
        counts.append((model.passes, report["pgd"].effort["forwards"]))
        assert report.to_frame().forwards.tolist()[-1] == counts[-1][1]
    few, many = counts
    assert [n - few[i] for i, n in enumerate(many)] == [10, 10]
    assert few[1] == 3


class Stuck(Ensemble):
    """An ensemble whose only part injects a node without an edge."""

    name = "stuck"
    kind = "injection"

    def has_budget(self, task: Task, budget: Budget) -> bool:
        return budget.max_injected_nodes > 0

    def run_parts(self, parts: Parts) -> None:
        x, edges = parts.task.x, parts.task.edge_index
        made = Artifact({"x": torch.cat([x, x[:1]])})
        parts.run("own: idle", parts.victim, lambda: made, lambda made: (made.tensors["x"], edges))


@pytest.mark.parametrize("threat", ["white_box", "adaptive"])
def test_measure_falls_back_on_the_control(threat: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, data = GCN(FEATURES, 8, out_channels=CLASSES), drawn_data()
    fit(model, data, max_epochs=30, accelerator="cpu")
    budget = Budget(40, 20, feature_limits=(-30.0, 30.0))
    attacks = {"stuck": Stuck(), "auto": AutoInjection(num_steps=0)}
    report = evaluate(model, data, budget=budget, attacks=attacks, threat=threat, progress=False)
    control, stuck = report["random"], report["stuck"]
    assert control.accuracy < report.clean_accuracy
    assert stuck.accuracy == control.accuracy
    assert torch.equal(stuck.graph.x, control.graph.x)
    assert stuck.graph.part == "random"
    parts = {"own: idle": report.clean_accuracy, "random": control.accuracy}
    assert stuck.graph.part_accuracy == parts
    assert "weaker_than_chance" in [flag.code for flag in stuck.flags]
    assert report["auto"].accuracy <= control.accuracy
    if threat == "white_box":
        alone = evaluate_model.attack(model, data, budget, Stuck())
        assert torch.equal(alone.x, control.graph.x)
    frame, wrong = measured_again(RobustnessReport.load(report.save(tmp_path)), model)
    assert (frame["reported"] == frame["measured"]).all()
    assert not wrong


def test_effort_trace() -> None:
    model = Counted().model
    report = evaluate(
        model, DATA, attacks=[AutoInjection(num_steps=8), PRBCD(num_steps=20)], budget=BUDGET
    )
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

    def modify(self, victim: Victim, task: Task, budget: Budget, rng: torch.Generator) -> Any:
        _, edges = super().modify(victim, task, replace(budget, edge_ratio=0.2), rng)
        victim(task.x, edges)
        return super().modify(victim, task, budget, rng)


def test_effort_trace_within_budget() -> None:
    attack, budget = Beyond(num_steps=10), Budget(edge_ratio=0.1)
    found = evaluate(trained(), graph(), attacks=attack, budget=budget)[attack.name]
    assert found.effort["trace"][-1][2] == found.accuracy


def test_effort_forwards_adaptive() -> None:
    torch.manual_seed(0)
    model, given = (
        GCNSVD(FEATURES, 8, out_channels=CLASSES),
        {"attacks": PGD(num_steps=5), "budget": BUDGET},
    )
    found = [evaluate(model, DATA, threat=of, **given) for of in ("white_box", "adaptive")]
    assert [report["pgd"].effort["forwards"] for report in found] == [5, 5]


def attack(folder: Path) -> AttackResult:
    data = graph()
    task = Task(data, data.index_test, data.y)
    victim = Victim(trained(), data.x, data.edge_index)
    budget, cache = Budget(12, 12, (-0.94, 0.94)), ArtifactStore(folder)
    bench = Bench(budget=budget, threat=WhiteBox(), cache=cache)
    return measure(victim, task, AutoInjection(num_steps=2), bench)


def entries(folder: Path) -> list[str]:
    return sorted(path.name.split("-")[0] for path in folder.iterdir())


@pytest.fixture
def ascents(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """From here on notes the ascents, and is interrupted at one of them."""
    climb = part.climb

    def counted(at: int = 0) -> list[int]:
        calls: list[int] = []

        def ascent(*arguments: Any) -> Any:
            calls.append(len(calls) + 1)
            if calls[-1] == at:
                raise KeyboardInterrupt
            return climb(*arguments)

        monkeypatch.setattr(part, "climb", ascent)
        return calls

    return counted


def test_measure_resumes(ascents: Callable[..., list[int]], tmp_path: Path) -> None:
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
