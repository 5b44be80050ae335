"""An ensemble of attacks that is killed goes on where it was."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from robust_diffusion.attacks import AutoInjection, Budget
from robust_diffusion.attacks.injection import auto
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.robustness.perturbed import Attacker, AttackOutcome, Run
from robust_diffusion.robustness.subject import Task
from robust_diffusion.robustness.threat import AttackedModel
from tests.attacks.contract import graph, same, trained

ASCENTS = 12 + 8 + 4 + 3 + 3
"""Of the rungs, and of the one round that this seed's best go on for."""

SEARCHES = 2

fork = multiprocessing.get_context("fork")


class Counted:
    """A part's computation, which counts its calls and does something else from one on."""

    def __init__(self, compute: Callable[..., Any], broken: Callable[[], None], at: int) -> None:
        self.calls = 0
        self._compute, self._broken, self._at = compute, broken, at

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls == self._at:
            self._broken()
        return self._compute(*arguments)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raise_error() -> None:
    raise OSError("disk on fire")


@pytest.fixture
def attack(tmp_path: Path) -> Callable[..., AttackOutcome]:
    def run(folder: str = "store", *, refresh: bool = False) -> AttackOutcome:
        attacker = Attacker(
            task=Task(graph(), graph().index_test, torch.device("cpu")),
            budget=Budget(12, 12, (-0.94, 0.94)),
            seed=0,
            store=ArtifactStore(tmp_path / folder, refresh=refresh),
            knows_labels=False,
        )
        attacked = AttackedModel(trained(), "state")
        return attacker(Run("auto", AutoInjection(num_steps=8), attacked, {"attack": "auto"}))

    return run


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Counted]:
    """Counts the ascents from here on."""
    climb = auto.climb

    def counted(broken: Callable[[], None] = raise_error, at: int = 0) -> Counted:
        counter = Counted(climb, broken, at)
        monkeypatch.setattr(auto, "climb", counter)
        return counter

    return counted


def entries(folder: Path) -> list[str]:
    return sorted(path.name.split("-")[0] for path in folder.iterdir())


@pytest.mark.parametrize("killed", [True, False])
def test_a_killed_attack_is_taken_up_where_it_was(
    attack: Callable[..., AttackOutcome],
    count: Callable[..., Counted],
    tmp_path: Path,
    killed: bool,
) -> None:
    counter = count()
    whole = attack("another")
    assert entries(tmp_path / "another") == ["graph"]
    assert counter.calls == ASCENTS

    if killed:
        count(kill_itself, at=6)
        child = fork.Process(target=attack)
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
    else:
        count(raise_error, at=6)
        with pytest.raises(OSError, match="disk on fire"):
            attack()
    assert entries(tmp_path / "store").count("part") == SEARCHES + 5

    counter = count()
    resumed = attack()
    assert counter.calls == ASCENTS - 5
    assert not resumed.reused
    assert same(resumed.graph, whole.graph)
    assert resumed.graph.part_accuracy == whole.graph.part_accuracy
    assert resumed.accuracy == whole.accuracy
    assert entries(tmp_path / "store") == ["graph"]


def test_the_time_of_parts_done_before_counts(
    attack: Callable[..., AttackOutcome],
    count: Callable[..., Counted],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count(raise_error, at=ASCENTS)
    with monkeypatch.context() as context:
        clock = iter(range(0, 100_000, 100))
        context.setattr("time.perf_counter", lambda: float(next(clock)))
        with pytest.raises(OSError, match="disk on fire"):
            attack()
    count()
    done = 100 * (SEARCHES + ASCENTS - 1)  # seconds, and one part now
    assert done < attack().seconds < done + 100


def test_force_repeats_every_part(
    attack: Callable[..., AttackOutcome], count: Callable[..., Counted], tmp_path: Path
) -> None:
    count(raise_error, at=6)
    with pytest.raises(OSError, match="disk on fire"):
        attack()
    counter = count()
    attack(refresh=True)
    assert counter.calls == ASCENTS
    attack(refresh=True)
    assert counter.calls == 2 * ASCENTS
    assert entries(tmp_path / "store") == ["graph"]
