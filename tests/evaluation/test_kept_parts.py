"""An ensemble of attacks that is broken off goes on where it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from robust_diffusion.attacks import AutoInjection, Budget
from robust_diffusion.attacks.injection import auto
from robust_diffusion.evaluation.flags import Attempt, Task
from robust_diffusion.evaluation.perturbed import Attacker, AttackRun
from robust_diffusion.records.store import ArtifactStore
from tests.attacks.contract import graph, same, trained

ASCENTS = 12 + 6 + 4 + 3 + 2
"""Of the rungs, and of the one round that this seed's best go on for."""

SEARCHES = 2


@pytest.fixture
def attack(tmp_path: Path) -> Callable[..., Attempt]:
    def run(folder: str = "store", *, refresh: bool = False) -> Attempt:
        attacker = Attacker(
            task=Task(graph(), graph().index_test, torch.device("cpu")),
            budget=Budget(12, 12, (-0.94, 0.94)),
            cache=ArtifactStore(tmp_path / folder, refresh=refresh),
        )
        auto, key = AutoInjection(num_steps=8), {"attack": "auto"}
        return attacker(AttackRun("auto", auto, trained(), "state", key, "", "auto"))

    return run


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
    attack: Callable[..., Attempt], ascents: Callable[..., list[int]], tmp_path: Path
) -> None:
    calls = ascents()
    whole = attack("another")
    assert entries(tmp_path / "another") == ["graph"]
    assert len(calls) == ASCENTS

    ascents(6)
    with pytest.raises(KeyboardInterrupt):
        attack()
    assert entries(tmp_path / "store").count("part") == SEARCHES + 5

    calls = ascents()
    resumed = attack()
    assert len(calls) == ASCENTS - 5
    assert not resumed.reused
    assert same(resumed.graph, whole.graph)
    assert resumed.graph.part_accuracy == whole.graph.part_accuracy
    assert resumed.accuracy == whole.accuracy
    again = resumed.effort["forwards"] - whole.effort["forwards"]
    assert 0 <= again <= 3  # what the problem asks of the model once
    reached = [[step[2] for step in of.effort["trace"]] for of in (resumed, whole)]
    assert reached[0] == reached[1]
    assert entries(tmp_path / "store") == ["graph"]
